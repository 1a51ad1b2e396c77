from __future__ import annotations

import importlib.metadata
import shutil
import socket
from collections import namedtuple
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.engine import gguf_files
from tidemill_common import paths
from tidemill_engine.model_store import ModelStore
from tidemill_harness import doctor, first_key
from tidemill_harness.doctor import Finding, Level
from tidemill_harness.sandbox import probe
from tidemill_harness.stack_plan import LOOPBACK


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))


def _only(findings: Iterable[Finding]) -> Finding:
    (finding,) = findings
    return finding


def test_python_outside_the_supported_range_fails() -> None:
    assert _only(doctor.check_python((3, 13))).level is Level.OK
    assert _only(doctor.check_python((3, 10))).mend.startswith("make")
    assert _only(doctor.check_python((3, 14))).level is Level.FAILS


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _only(doctor.check_packages()).level is Level.OK

    def version(name: str) -> str:
        if name == "torch":
            raise importlib.metadata.PackageNotFoundError
        return "1"

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert _only(doctor.check_packages()) == Finding("packages", Level.FAILS, "missing: torch", "make install")


@pytest.mark.requirement("doctor:mends")
def test_a_missing_model_comes_with_the_command_that_brings_it(tmp_path: Path) -> None:
    assert _only(doctor.check_model()).mend == "tidemill model add smollm2"
    ModelStore().add(str(gguf_files.tiny(tmp_path / "m.gguf")), None, lambda *_: None)
    assert _only(doctor.check_model()).mend == "tidemill up --model m"
    ModelStore().add(str(gguf_files.tiny(tmp_path / "m.gguf")), "smollm2", lambda *_: None)
    assert _only(doctor.check_model()).level is Level.OK
    (paths.models_dir() / "m" / "tidemill.json").unlink()
    assert [each.level for each in doctor.check_model()] == [Level.FAILS, Level.OK]


def test_a_taken_port_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        other.listen()
        monkeypatch.setattr(doctor, "DEFAULT_PORT", other.getsockname()[1])
        assert _only(doctor.check_port()).level is Level.NOTE
    assert _only(doctor.check_port()).level is Level.OK


def test_a_full_disk_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _only(doctor.check_disk()).level is Level.OK
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, 1000))
    assert "XDG_DATA_HOME" in _only(doctor.check_disk()).mend


def test_secrets_that_others_can_read_fail_with_chmod() -> None:
    assert "none yet" in _only(doctor.check_secrets()).text
    first_key.ensure()
    assert _only(doctor.check_secrets()).level is Level.OK
    paths.first_key_file().chmod(0o644)
    assert _only(doctor.check_secrets()).mend == f"chmod 600 {paths.first_key_file()}"
    paths.first_key_file().chmod(0o600)
    paths.keys_file().write_text("{")
    assert "malformed" in _only(doctor.check_secrets()).text


def test_little_memory_is_a_note(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable: 1024 kB\n")
    levels = {finding.subject: finding.level for finding in doctor.check_machine(meminfo)}
    assert levels == {"node": Level.OK, "memory": Level.NOTE}


def test_no_sandbox_fails_with_what_brings_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "findings", list)
    assert "bubblewrap" in _only(doctor.check_sandbox()).mend


@pytest.mark.requirement("doctor:mends")
@pytest.mark.parametrize(("level", "code"), [(Level.OK, 0), (Level.NOTE, 0), (Level.FAILS, 1)])
def test_the_exit_code_tells_whether_something_fails(level: Level, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check: Callable[[], Iterable[Finding]] = lambda: [Finding("thing", level, "is so", "mend it")]  # noqa: E731 - a one-line stand-in
    monkeypatch.setattr(doctor, "CHECKS", (check,))
    app = typer.Typer()
    doctor.register(app)
    result = CliRunner().invoke(app, [])
    assert result.exit_code == code
    assert "→ mend it" in result.output
