from __future__ import annotations

from pathlib import Path

import pytest

from tidemill_common import paths
from tidemill_harness.stack_plan import ChildSpec, StackOptions, names, plan

_MODEL = Path("/models/m")


def _plan(options: StackOptions, processors: int = 2) -> dict[str, ChildSpec]:
    ports = {name: 1000 + n for n, name in enumerate(names(options))}
    return {spec.name: spec for spec in plan(options, _MODEL, ports, 8080, processors)}


@pytest.mark.requirement("stack:six-processes")
def test_the_default_stack_is_six_services_each_with_a_process() -> None:
    specs = _plan(StackOptions())
    assert {spec.service for spec in specs.values()} == {"gateway", "tokenizer", "safety", "router", "prefill", "decode"}
    assert len(specs) == 6
    assert specs["gateway"].command[-2:] == ("-m", "tidemill_gateway")


def test_torch_keeps_its_folder_out_of_the_temporary_one() -> None:
    specs = _plan(StackOptions())
    assert {spec.environment["TORCHINDUCTOR_CACHE_DIR"] for spec in specs.values()} == {str(paths.state_dir() / "torch")}


def test_workers_are_numbered_where_there_are_several() -> None:
    assert list(names(StackOptions(decode=2, prefill=0))) == [
        "decode-0",
        "decode-1",
        "tokenizer",
        "gateway",
        "router",
        "safety",
    ]


def test_addresses_fit_together() -> None:
    specs = _plan(StackOptions())
    gateway, decode, router = (specs[name].environment for name in ("gateway", "decode", "router"))
    address = f"127.0.0.1:{router['TIDEMILL_ROUTER_PORT']}"
    assert gateway["TIDEMILL_GATEWAY_ROUTER"] == decode["TIDEMILL_DECODE_ROUTER"] == address
    assert gateway["TIDEMILL_GATEWAY_HTTP_PORT"] == "8080"
    assert decode["TIDEMILL_DECODE_WORKER_ID"] == "decode"


def test_what_is_not_chosen_is_left_to_the_service() -> None:
    environment = {key for spec in _plan(StackOptions()).values() for key in spec.environment}
    chosen = {
        "TIDEMILL_ROUTER_DISAGGREGATION_THRESHOLD",
        "TIDEMILL_GATEWAY_SAFETY_MODE",
        "TIDEMILL_GATEWAY_SCRIPTS_FILE",
        "TIDEMILL_DECODE_DTYPE",
    }
    assert not chosen & environment
    options = StackOptions(disaggregation_threshold=0, safety_mode="hold", scripts=Path("s.json"), dtype="bfloat16")
    assert chosen <= {key for spec in _plan(options).values() for key in spec.environment}


def test_the_context_length_reaches_tokenizer_and_workers() -> None:
    specs = _plan(StackOptions(context_length=32768))
    for name in ("tokenizer", "decode", "prefill"):
        assert specs[name].environment[f"TIDEMILL_{name.upper()}_CONTEXT_LENGTH"] == "32768"


@pytest.mark.parametrize(
    ("options", "processors", "threads"),
    [
        (StackOptions(), 2, "2"),
        (StackOptions(decode=2), 2, "1"),
        (StackOptions(decode=4), 2, "1"),
        (StackOptions(), 16, "16"),
        (StackOptions(threads=3), 16, "3"),
    ],
)
def test_processors_are_shared_out(options: StackOptions, processors: int, threads: str) -> None:
    specs = _plan(options, processors)
    assert {spec.environment["TIDEMILL_DECODE_THREADS"] for spec in specs.values() if spec.service == "decode"} == {threads}


def test_callers_stop_before_those_they_call() -> None:
    stages = {name: spec.stage for name, spec in _plan(StackOptions()).items()}
    assert stages["gateway"] > stages["decode"] == stages["prefill"] > stages["router"] == stages["tokenizer"]
