"""`tidemill up` with the real services and the default model."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.stack import Stacks
from tests.harness import stand_ins
from tidemill_common import paths
from tidemill_harness import stack_file
from tidemill_harness.stack_plan import LOOPBACK

SERVICES = ["decode", "gateway", "prefill", "router", "safety", "tokenizer"]
_START_SECONDS, _END_SECONDS = 240, 60

pytestmark = [pytest.mark.stack, pytest.mark.model, pytest.mark.timeout(600)]


@dataclass
class Up:
    """A running `tidemill up`."""

    process: subprocess.Popen[str]
    line: str

    @property
    def fields(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in self.line.split() if "=" in word)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.fields["url"] + path, headers=self._headers(), trust_env=False, timeout=60)

    def answer(self, text: str) -> dict[str, Any]:
        body = {"model": "smollm2", "input": text, "max_output_tokens": 12}
        reply = httpx.post(
            self.fields["url"] + "/v1/responses", json=body, headers=self._headers(), trust_env=False, timeout=180
        )
        return dict(reply.raise_for_status().json())

    def hops(self, text: str) -> list[dict[str, Any]]:
        """Who worked on a streamed turn."""
        body = {"model": "smollm2", "input": text, "max_output_tokens": 4, "stream": True}
        headers = self._headers() | {"x-tidemill-hops": "1"}
        url = self.fields["url"] + "/v1/responses"
        reply = httpx.post(url, json=body, headers=headers, trust_env=False, timeout=300).raise_for_status()
        events = [json.loads(line.removeprefix("data: ")) for line in reply.text.splitlines() if line.startswith("data: {")]
        return list(next(event["hops"] for event in events if event["type"] == "response.metadata"))

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.fields['key']}"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smollm2: Path, stacks: Stacks) -> Path:
    """Keys, store and logs of the test alone; the models are the machine's. The stack that other tests share ends before."""
    stacks.stop()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    assert smollm2.parent == paths.models_dir()
    return tmp_path


@contextlib.contextmanager
def _up(*arguments: str) -> Iterator[Up]:
    command = [sys.executable, "-m", "tidemill_harness", "up", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        readable, _, _ = select.select([process.stdout], [], [], _START_SECONDS)
        line = process.stdout.readline().strip() if readable else ""
        if not line.startswith("ready "):
            process.terminate()
            pytest.fail(f"no ready line: {line!r} {process.communicate(timeout=_END_SECONDS)[1]}")
        yield Up(process, line)
    finally:
        process.kill()
        process.communicate(timeout=_END_SECONDS)


def _status() -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "tidemill_harness", "status", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_END_SECONDS, check=False)
    return done.returncode, json.loads(done.stdout)


def _service(name: str) -> stack_file.ServiceEntry:
    stack = stack_file.read()
    assert stack is not None
    return next(each for each in stack.services if each.name == name)


def _await_restart(name: str, first: stack_file.ServiceEntry) -> stack_file.ServiceEntry:
    """Wait until a service is ready again; the stack file is written at each change."""
    deadline = subprocess.Popen([sys.executable, "-c", f"import signal; signal.alarm({_START_SECONDS}); signal.pause()"])
    try:
        while deadline.poll() is None:
            now = _service(name)
            if now.state == "ready" and now.restarts > first.restarts:
                return now
            with contextlib.suppress(subprocess.TimeoutExpired):
                deadline.wait(timeout=0.2)
    finally:
        deadline.kill()
        deadline.wait()
    pytest.fail(f"{name} is not ready again: {_service(name)}")


def _await_end(pids: list[int]) -> list[int]:
    """Wait for processes of others to end; those that live on."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            select.select([descriptor], [], [], _END_SECONDS)
            os.close(descriptor)
    return stand_ins.running(pids)


def _listening(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@pytest.mark.requirement("stack:six-processes")
@pytest.mark.requirement("stack:restart")
@pytest.mark.requirement("stack:no-orphans")
@pytest.mark.requirement("stack:port-taken")
def test_six_processes_serve_survive_a_killed_worker_and_end_with_a_killed_parent(home: Path) -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        other.listen()
        taken = other.getsockname()[1]
        with _up("--port", str(taken)) as up:
            assert f"(port {taken} is taken)" in up.line
            code, status = _status()
            assert code == 0, status
            assert sorted(each["service"] for each in status["services"]) == SERVICES
            pids = [each["pid"] for each in status["services"]]
            assert len(set(pids)) == 6
            assert all(each["memory"] > 10_000_000 for each in status["services"])
            assert sorted(each["role"] for each in status["workers"]) == ["decode", "prefill"]
            assert status["gateway"]["turns"] == 0
            assert up.get("/v1/models").json()["data"][0]["id"] == "smollm2"
            assert up.answer("What is the capital of France?")["output"][0]["content"][0]["text"].startswith("The capital")

            hops = up.hops("Sum this up: " + "the tide turns the mill and the mill grinds the corn. " * 40)
            assert {hop["service"]: hop["pid"] for hop in hops} == {s["service"]: s["pid"] for s in status["services"]}

            first = _service("decode")
            os.kill(first.pid, signal.SIGKILL)
            second = _await_restart("decode", first)
            assert second.address == first.address
            assert up.answer("What is the capital of France?")["status"] in ("completed", "incomplete")

            pids = [each.pid for each in (stack_file.read() or pytest.fail("no stack file")).services]
            up.process.kill()
            assert _await_end(pids) == []
    assert not paths.stack_file().exists()
    assert not _listening(second.address)
    assert not _listening(up.fields["url"].removeprefix("http://"))
    assert not [each for each in paths.state_dir().iterdir() if each.name.startswith(".") or each.name == "stack.json"]
    assert list(Path("/dev/shm").glob("*tidemill*")) == []


@pytest.mark.requirement("stack:no-orphans")
@pytest.mark.requirement("stack:one-at-a-time")
def test_down_ends_the_stack_and_two_decode_workers_are_two_processes(home: Path) -> None:
    with _up("--port", "0", "--decode", "2", "--prefill", "0", "--safety-mode", "hold") as up:
        code, status = _status()
        assert code == 0, status
        assert sorted(each["id"] for each in status["workers"]) == ["decode-0", "decode-1"]
        command = [sys.executable, "-m", "tidemill_harness"]
        second = subprocess.run([*command, "up"], capture_output=True, text=True, timeout=_END_SECONDS, check=False)
        assert (second.returncode, up.fields["url"] in second.stderr) == (1, True)
        subprocess.run([*command, "down"], timeout=2 * _END_SECONDS, check=True)
        assert up.process.wait(timeout=_END_SECONDS) == 0
    assert _await_end([each["pid"] for each in status["services"]]) == []
    assert not paths.stack_file().exists()
    assert stack_file.read() is None
