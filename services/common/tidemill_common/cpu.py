"""CPU generations: one table for the node type label, reports and node steering.

Ids are (vendor, family, model) as /proc/cpuinfo writes them (Linux's intel-family.h and cputype.h). A CPU that the table does
not know is typed by its widest vector level.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

INTEL, AMD = "GenuineIntel", "AuthenticAMD"


@dataclass(frozen=True, slots=True)
class Generation:
    """One CPU generation.

    Attributes:
        name: lower-case name, the node type.
        vendor: vendor_id of x86, implementer of Arm.
        family: CPU family; 0 on Arm.
        models: model numbers (x86) or part numbers (Arm).
        modern: Ice Lake class or newer: where CPU services belong.
    """

    name: str
    vendor: str
    family: int
    models: frozenset[int]
    modern: bool


def _row(name: str, vendor: str, family: int, models: Iterable[int], modern: bool) -> Generation:
    return Generation(name, vendor, family, frozenset(models), modern)


GENERATIONS: tuple[Generation, ...] = (
    _row("sandybridge", INTEL, 6, [45], False),
    _row("ivybridge", INTEL, 6, [62], False),
    _row("haswell", INTEL, 6, [60, 63, 69, 70], False),
    _row("broadwell", INTEL, 6, [61, 71, 79, 86], False),
    _row("skylake", INTEL, 6, [85], False),
    _row("icelake", INTEL, 6, [106, 108], True),
    _row("sapphirerapids", INTEL, 6, [143], True),
    _row("emeraldrapids", INTEL, 6, [207], True),
    _row("graniterapids", INTEL, 6, [173, 174], True),
    _row("sierraforest", INTEL, 6, [175], True),
    _row("clearwaterforest", INTEL, 6, [221], True),
    _row("naples", AMD, 23, [1], False),
    _row("rome", AMD, 23, [49], False),
    _row("milan", AMD, 25, [0, 1], True),
    _row("genoa", AMD, 25, [16, 17, *range(160, 176)], True),
    _row("turin", AMD, 26, range(0x20), True),
    _row("neoverse-n1", "0x41", 0, [0xD0C], False),
    _row("neoverse-v1", "0x41", 0, [0xD40], True),
    _row("neoverse-n2", "0x41", 0, [0xD49], True),
    _row("neoverse-v2", "0x41", 0, [0xD4F], True),
    _row("neoverse-v3", "0x41", 0, [0xD83, 0xD84], True),
    _row("neoverse-n3", "0x41", 0, [0xD8E], True),
    _row("cobalt", "0x6d", 0, [0xD49], True),
    _row("ampereone", "0xc0", 0, [0xAC3, 0xAC4], True),
)

_VECTOR_LEVELS = (
    ("amx_tile", "amx"),
    ("avx512f", "avx512"),
    ("sve2", "sve2"),
    ("sve", "sve"),
    ("avx2", "avx2"),
    ("avx", "avx"),
)


def parse(cpuinfo: str) -> dict[str, str]:
    """The first processor's fields of a /proc/cpuinfo text."""
    first = cpuinfo.strip().split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def classify(cpuinfo: str) -> str:
    """Node type of a /proc/cpuinfo text: a generation's name, or ``unknown-`` and the widest vector level."""
    fields = parse(cpuinfo)
    vendor = fields.get("vendor_id") or fields.get("CPU implementer", "").lower()
    family = int(fields.get("cpu family", 0))
    model = int(fields.get("model") or fields.get("CPU part", "0"), 0)
    for generation in GENERATIONS:
        if (generation.vendor, generation.family) == (vendor, family) and model in generation.models:
            return generation.name
    flags = set((fields.get("flags") or fields.get("Features", "")).split())
    return "unknown-" + next((level for flag, level in _VECTOR_LEVELS if flag in flags), "baseline")


@functools.cache
def node_type(path: Path = Path("/proc/cpuinfo")) -> str:
    """Node type of this machine, read once."""
    try:
        return classify(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "unknown-baseline"
