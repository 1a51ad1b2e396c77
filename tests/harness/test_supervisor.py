from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.harness import stand_ins
from tidemill_common import paths
from tidemill_common.errors import TidemillError
from tidemill_common.model_dir import ModelProfile
from tidemill_harness import stack_file, supervisor
from tidemill_harness.stack_plan import ChildSpec, StackOptions
from tidemill_harness.supervisor import Supervisor, local_stack

_PARENT = """
import asyncio, os, sys
from tests.harness import stand_ins
from tidemill_harness import supervisor
from tidemill_harness.stack_plan import StackOptions
supervisor.plan = lambda *arguments: [stand_ins.spec("gateway", "good", 1), stand_ins.spec("decode", sys.argv[1])]
async def main():
    async with supervisor.local_stack(StackOptions(model=sys.argv[2], port=0), shared=True) as stack:
        print(*(entry.pid for entry in stack.supervisor.entries()), flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    return tmp_path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "models" / "tiny"
    directory.mkdir(parents=True)
    ModelProfile("tiny", "chatml", "f" * 32, 64, (2,)).save(directory)
    return directory


@asynccontextmanager
async def _started(specs: list[ChildSpec], tmp_path: Path) -> AsyncIterator[Supervisor]:
    running = Supervisor(specs, tmp_path / "logs")
    await asyncio.wait_for(running.start(), 60)
    try:
        yield running
    finally:
        await running.stop()


async def test_all_children_start_and_all_stop(tmp_path: Path) -> None:
    before = stand_ins.open_descriptors()
    async with _started([stand_ins.spec("a"), stand_ins.spec("b", stage=1)], tmp_path) as running:
        entries = running.entries()
        assert [entry.state for entry in entries] == ["ready", "ready"]
        assert running.announcement("b")["address"] == "127.0.0.1:1"
    assert stand_ins.running([entry.pid for entry in entries]) == []
    assert stand_ins.open_descriptors() == before


async def test_one_child_that_does_not_start_stops_the_start_and_leaves_none(tmp_path: Path) -> None:
    pids: set[int] = set()
    specs = [stand_ins.spec("a"), stand_ins.spec("b", "broken")]
    running = Supervisor(specs, tmp_path / "logs", changed=lambda: pids.update(entry.pid for entry in running.entries()))
    with pytest.raises(TidemillError, match=r"b exited with 3 before it was ready: the model is missing \(log: .*b.log\)"):
        await asyncio.wait_for(running.start(), 60)
    assert running.entries() == ()
    assert stand_ins.running(sorted(pids - {0})) == []


def _parent(kind: str, model: Path) -> tuple[subprocess.Popen[str], list[int]]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", _PARENT, kind, str(model)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    return process, [int(pid) for pid in process.stdout.readline().split()]


def _await_gone(pids: list[int]) -> None:
    """Wait for processes that are not ours."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        select.select([descriptor], [], [], 30)
        os.close(descriptor)


@pytest.mark.stack
@pytest.mark.requirement("stack:no-orphans")
@pytest.mark.parametrize("kind", ["good", "stubborn"])
def test_a_killed_parent_leaves_no_process_and_no_stack_file(kind: str, model: Path) -> None:
    process, pids = _parent(kind, model)
    described = json.loads(paths.stack_file().read_text())
    assert described["pid"] == process.pid
    assert [each["pid"] for each in described["services"]] == pids
    process.kill()
    process.communicate(timeout=30)
    _await_gone(pids)
    assert stand_ins.running(pids) == []
    assert sorted(each.name for each in paths.state_dir().iterdir()) == ["logs"]


@pytest.mark.stack
@pytest.mark.requirement("stack:one-at-a-time")
async def test_a_second_shared_stack_is_told_where_the_first_runs(model: Path) -> None:
    process, pids = _parent("good", model)
    try:
        with pytest.raises(TidemillError, match=rf"a stack runs already at http://127.0.0.1:\d+ \(pid {process.pid}\)"):
            async with local_stack(StackOptions(model=str(model), port=0), shared=True):
                pytest.fail("started")
        assert supervisor.is_running()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert not supervisor.is_running()
    assert stand_ins.running(pids) == []
    assert stack_file.read() is None


async def test_a_private_stack_has_a_key_and_a_free_port_and_no_stack_file(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "plan", lambda *arguments: [stand_ins.spec("gateway")])
    async with local_stack(StackOptions(model=str(model), port=0)) as stack:
        assert stack.url.startswith("http://127.0.0.1:")
        assert stack.api_key == paths.first_key_file().read_text().strip()
        assert stack.model == "tiny"
        assert not paths.stack_file().exists()
        assert not supervisor.is_running()


async def test_a_model_that_is_not_here_is_named_with_the_command_that_brings_it() -> None:
    with pytest.raises(TidemillError, match="`tidemill model add smollm2`"):
        async with local_stack():
            pytest.fail("started")
