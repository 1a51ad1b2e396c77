"""What the local stack is made of: which processes with which settings. Pure; ``supervisor`` starts them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemill_common import paths

DEFAULT_MODEL = "smollm2"
DEFAULT_PORT = 8080
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What a user chooses of the local stack.

    Attributes:
        model: name in the model store, or a model directory's path.
        port: port of the gateway; a free one is taken when it is not free. 0 asks for a free one.
        context_length: tokens; 0 is the model's own.
        decode: number of decode workers, at least 1.
        prefill: number of prefill workers; 0 means that decode workers do it.
        safety_mode: stream or hold; None leaves the gateway's default.
        allow_forced_output: whether requests may force their output.
        scripts: file of scripted model aliases.
        disaggregation_threshold: uncached tokens above which a prefill worker is used; None leaves the router's default.
        dtype: float32 or bfloat16; None leaves the workers' default.
        threads: threads of each worker; 0 shares out the processors.
    """

    model: str = DEFAULT_MODEL
    port: int = DEFAULT_PORT
    context_length: int = 0
    decode: int = 1
    prefill: int = 1
    safety_mode: str | None = None
    allow_forced_output: bool = False
    scripts: Path | None = None
    disaggregation_threshold: int | None = None
    dtype: str | None = None
    threads: int = 0


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One process to run.

    Attributes:
        name: unique in the stack, that of its log.
        service: which of the six.
        command: program and arguments.
        environment: variables added to the supervisor's own.
        stage: order of stopping; higher ones stop first, since they call the lower ones.
    """

    name: str
    service: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    stage: int = 0


def names(options: StackOptions) -> dict[str, str]:
    """Each child's service by its name, in the order of starting: the workers load the model, so they come first."""
    workers = {"decode": options.decode, "prefill": options.prefill}
    many = {f"{kind}-{n}" if count > 1 else kind: kind for kind, count in workers.items() for n in range(count)}
    return many | {each: each for each in ("tokenizer", "gateway", "router", "safety")}


def plan(options: StackOptions, model_dir: Path, ports: Mapping[str, int], http_port: int, processors: int) -> list[ChildSpec]:
    """The stack's processes; ``ports`` has a gRPC port for each of ``names``."""
    address = {name: f"{LOOPBACK}:{port}" for name, port in ports.items()}
    threads = options.threads or max(1, processors // max(options.decode, options.prefill))
    return [
        _spec(name, service, ports[name], _settings(service, name, options, model_dir, address, http_port, threads))
        for name, service in names(options).items()
    ]


_STAGES = {"gateway": 2, "decode": 1, "prefill": 1}


def _spec(name: str, service: str, port: int, settings: Mapping[str, object]) -> ChildSpec:
    prefix = f"TIDEMILL_{service.upper()}_"
    own = {f"{prefix}{key}": str(value) for key, value in {**settings, "HOST": LOOPBACK, "PORT": port}.items()}
    command = (sys.executable, "-P", "-m", f"tidemill_{service}")
    return ChildSpec(name, service, command, own | _common(), _STAGES.get(service, 0))


def _common() -> dict[str, str]:
    """Idle OpenMP threads sleep, as services share processors; nothing asks the hub or writes to the temporary folder."""
    return {
        "OMP_WAIT_POLICY": "passive",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TORCHINDUCTOR_CACHE_DIR": str(paths.state_dir() / "torch"),
    }


def _settings(
    service: str,
    name: str,
    options: StackOptions,
    model_dir: Path,
    address: Mapping[str, str],
    http_port: int,
    threads: int,
) -> dict[str, object]:
    if service == "tokenizer":
        return {"MODEL_DIR": model_dir, "CONTEXT_LENGTH": options.context_length}
    if service == "router":
        return _given(DISAGGREGATION_THRESHOLD=options.disaggregation_threshold)
    if service in ("decode", "prefill"):
        worker = {"MODEL_DIR": model_dir, "WORKER_ID": name, "ROUTER": address["router"], "THREADS": threads}
        return worker | {"CONTEXT_LENGTH": options.context_length} | _given(DTYPE=options.dtype)
    if service == "gateway":
        return _gateway(options, model_dir, address, http_port)
    return {}


def _gateway(options: StackOptions, model_dir: Path, address: Mapping[str, str], http_port: int) -> dict[str, object]:
    return {
        "MODEL_DIR": model_dir,
        "TOKENIZER": address["tokenizer"],
        "SAFETY": address["safety"],
        "ROUTER": address["router"],
        "HTTP_HOST": LOOPBACK,
        "HTTP_PORT": http_port,
        "KEYS_FILE": paths.keys_file(),
        "DIGEST_SECRET_FILE": paths.digest_secret_file(),
        "STORE_FILE": paths.store_file(),
        "ALLOW_FORCED_OUTPUT": str(options.allow_forced_output).lower(),
        **_given(SCRIPTS_FILE=options.scripts and options.scripts.resolve(), SAFETY_MODE=options.safety_mode),
    }


def _given(**settings: object) -> dict[str, object]:
    return {name: value for name, value in settings.items() if value is not None}
