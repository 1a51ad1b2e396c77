from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_common import cpu

# Shortened /proc/cpuinfo of real machines; the second processor of each must not matter.
INTEL = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: {model}
model name\t: {name}
stepping\t: 1
flags\t\t: fpu vme sse2 avx avx2 {flags}

processor\t: 1
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
"""
AMD = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: {family}
model\t\t: {model}
model name\t: AMD EPYC
flags\t\t: fpu vme sse2 avx avx2 vaes
"""
ARM = """processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd {features}
CPU implementer\t: {implementer}
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: {part}
CPU revision\t: 1
"""


@pytest.mark.requirement("telemetry:node-type")
@pytest.mark.parametrize(
    ("cpuinfo", "node_type"),
    [
        (INTEL.format(model=79, name="Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz", flags=""), "broadwell"),
        (INTEL.format(model=63, name="Intel(R) Xeon(R) CPU E5-2676 v3 @ 2.40GHz", flags=""), "haswell"),
        (INTEL.format(model=85, name="Intel(R) Xeon(R) Platinum 8175M CPU", flags="avx512f"), "skylake"),
        (INTEL.format(model=106, name="Intel(R) Xeon(R) Platinum 8375C CPU", flags="avx512f vaes"), "icelake"),
        (INTEL.format(model=143, name="Intel(R) Xeon(R) Platinum 8488C", flags="avx512f amx_tile"), "sapphirerapids"),
        (INTEL.format(model=207, name="Intel(R) Xeon(R) Platinum 8559C", flags="avx512f amx_tile"), "emeraldrapids"),
        (AMD.format(family=23, model=1), "naples"),
        (AMD.format(family=23, model=49), "rome"),
        (AMD.format(family=25, model=1), "milan"),
        (AMD.format(family=25, model=17), "genoa"),
        (AMD.format(family=26, model=2), "turin"),
        (ARM.format(implementer="0x41", part="0xd0c", features=""), "neoverse-n1"),
        (ARM.format(implementer="0x41", part="0xd40", features="sve"), "neoverse-v1"),
        (ARM.format(implementer="0x6D", part="0xd49", features="sve sve2"), "cobalt"),
    ],
)
def test_known_machines_have_their_generation(cpuinfo: str, node_type: str) -> None:
    assert cpu.classify(cpuinfo) == node_type


@pytest.mark.requirement("telemetry:node-type")
@pytest.mark.parametrize(
    ("cpuinfo", "node_type"),
    [
        (INTEL.format(model=999, name="tomorrow", flags="avx512f amx_tile"), "unknown-amx"),
        (INTEL.format(model=999, name="masked", flags="avx512f"), "unknown-avx512"),
        (INTEL.format(model=999, name="masked", flags=""), "unknown-avx2"),
        (ARM.format(implementer="0x99", part="0x001", features="sve2 sve"), "unknown-sve2"),
        (ARM.format(implementer="0x99", part="0x001", features=""), "unknown-baseline"),
        ("", "unknown-baseline"),
    ],
)
def test_unknown_machines_are_typed_by_their_vectors(cpuinfo: str, node_type: str) -> None:
    assert cpu.classify(cpuinfo) == node_type


@given(st.text(max_size=200))
def test_any_text_has_a_type_or_is_malformed(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert cpu.classify(text)


def test_generations_are_distinct_and_modern_from_ice_lake_on() -> None:
    ids = [(each.vendor, each.family, model) for each in cpu.GENERATIONS for model in each.models]
    assert len(set(ids)) == len(ids)
    modern = {each.name: each.modern for each in cpu.GENERATIONS}
    assert modern["icelake"]
    assert modern["milan"]
    assert not modern["broadwell"]
    assert not modern["rome"]


def test_a_machine_without_cpuinfo_has_a_type_too(tmp_path: Path) -> None:
    assert cpu.node_type(tmp_path / "none") == "unknown-baseline"
    (tmp_path / "odd").write_text("cpu family: many\n", encoding="utf-8")
    assert cpu.node_type(tmp_path / "odd") == "unknown-baseline"
