"""The verbs as processes, over stand-in services."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import stand_ins
from tidemill_common import paths
from tidemill_common.model_dir import ModelProfile
from tidemill_harness.stack_plan import LOOPBACK

_COMMAND = """
import sys
from tests.harness import stand_ins
from tidemill_harness import supervisor
kind = sys.argv.pop(1)
supervisor.plan = lambda *arguments: [stand_ins.spec("gateway", "good", 1), stand_ins.spec("decode", kind)]
from tidemill_harness.__main__ import main
main()
"""

pytestmark = pytest.mark.stack


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    directory = paths.models_dir() / "tiny"
    directory.mkdir(parents=True)
    ModelProfile("tiny", "chatml", "f" * 32, 64, (2,)).save(directory)
    return directory


def _tidemill(*arguments: str, kind: str = "good") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _COMMAND, kind, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@contextlib.contextmanager
def _up(*arguments: str, kind: str = "good") -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _COMMAND, kind, "up", "--model", "tiny", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=30)


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def _pids() -> list[int]:
    return [each["pid"] for each in json.loads(paths.stack_file().read_text())["services"]]


@pytest.mark.requirement("stack:up")
def test_up_prints_one_ready_line_with_url_and_key() -> None:
    with _up("--port", "0") as process:
        words = dict(word.split("=", 1) for word in _first_line(process).removeprefix("ready ").split())
        assert words["url"] == json.loads(paths.stack_file().read_text())["url"]
        assert words["key"] == Path(words["key_file"]).read_text().strip()
        assert words["model"] == "tiny"
        process.send_signal(signal.SIGINT)
        rest, told = process.communicate(timeout=30)
    assert (rest, told, process.returncode) == ("", "stopping\n", 0)


@pytest.mark.requirement("stack:no-orphans")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_everything_and_leaves_only_what_is_documented(number: signal.Signals) -> None:
    with _up("--port", "0") as process:
        _first_line(process)
        pids = _pids()
        process.send_signal(number)
        process.communicate(timeout=30)
    assert process.returncode == 0
    assert stand_ins.running(pids) == []
    assert [each.name for each in paths.state_dir().iterdir()] == ["logs"]
    assert sorted(each.name for each in paths.config_dir().iterdir()) == ["first-key", "keys.json"]


def test_a_signal_during_the_start_stops_it() -> None:
    with _up("--port", "0", kind="silent") as process:
        _await_log("decode")
        process.send_signal(signal.SIGINT)
        out, told = process.communicate(timeout=30)
    assert (out, told, process.returncode) == ("", "stopped before it was ready\n", 0)
    assert [each.name for each in paths.state_dir().iterdir()] == ["logs"]


def _await_log(name: str) -> None:
    path, deadline = paths.logs_dir() / f"{name}.log", 60.0
    with contextlib.suppress(subprocess.TimeoutExpired):
        waiting = f"while not __import__('os').path.exists({str(path)!r}): pass"
        subprocess.run([sys.executable, "-c", waiting], timeout=deadline, check=True)


@pytest.mark.requirement("stack:up")
def test_a_service_that_does_not_start_ends_up_with_its_reason() -> None:
    done = _tidemill("up", "--model", "tiny", "--port", "0", kind="broken")
    assert done.returncode == 1
    assert "decode exited with 3 before it was ready: the model is missing (log: " in done.stderr
    assert not paths.stack_file().exists()


@pytest.mark.requirement("stack:port-taken")
def test_the_ready_line_says_that_the_port_is_taken() -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        other.listen()
        taken = other.getsockname()[1]
        with _up("--port", str(taken)) as process:
            line = _first_line(process)
    assert f" (port {taken} is taken) " in line
    assert f"url=http://127.0.0.1:{taken} " not in line


@pytest.mark.requirement("stack:one-at-a-time")
def test_a_second_up_says_where_the_first_runs_and_down_stops_it() -> None:
    with _up("--port", "0") as process:
        url = _first_line(process).split()[1].removeprefix("url=")
        pids = _pids()
        second = _tidemill("up", "--model", "tiny", "--port", "0")
        assert second.returncode == 1
        assert f"a stack runs already at {url} (pid {process.pid})" in second.stderr
        stopped = _tidemill("down")
        assert stopped.stdout == f"Stopped the stack at {url}.\n"
        process.communicate(timeout=30)
    assert stand_ins.running(pids) == []
    assert _tidemill("down").stdout == "No stack is running.\n"


@pytest.mark.requirement("stack:status")
def test_status_tells_of_each_process_and_of_what_does_not_answer() -> None:
    none = _tidemill("status")
    assert (none.returncode, none.stdout) == (1, "No stack is running; `tidemill up` starts one.\n")
    with _up("--port", "0") as process:
        _first_line(process)
        pids = _pids()
        as_json = json.loads(_tidemill("status", "--json").stdout)
        shown = _tidemill("status")
    assert [each["pid"] for each in as_json["services"]] == pids
    assert all(each["memory"] > 0 and each["ready"] is False for each in as_json["services"])
    assert (as_json["workers"], as_json["gateway"]) == (None, None)
    assert "the router is down" in as_json["problems"]
    assert shown.returncode == 2
    for word in ("gateway", "decode", "not ready", "decode.log", "the gateway does not answer"):
        assert word in shown.stdout


def test_a_stack_file_left_behind_is_removed_by_down(tmp_path: Path) -> None:
    with _up("--port", "0") as process:
        _first_line(process)
        left = paths.stack_file().read_text()
    paths.stack_file().write_text(json.dumps(json.loads(left) | {"pid": os.getpid()}))
    assert _tidemill("down").stdout == "No stack is running.\n"
    assert not paths.stack_file().exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scripts", __file__], "needs --allow-forced-output"),
        (["--decode", "0"], "--decode"),
        (["--port", "70000"], "--port"),
        (["--safety-mode", "never"], "--safety-mode"),
    ],
)
def test_wrong_usage_is_named(arguments: list[str], message: str) -> None:
    done = _tidemill("up", "--model", "tiny", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_the_model_of_the_running_stack_is_not_removed(model: Path) -> None:
    with _up("--port", "0") as process:
        _first_line(process)
        refused = _tidemill("model", "rm", "tiny")
        assert refused.returncode == 1
        assert "the running stack serves 'tiny'" in refused.stderr
    assert model.exists()
