from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.harness import stand_ins
from tidemill_common.errors import TidemillError
from tidemill_harness import child as child_module
from tidemill_harness import stack_logs
from tidemill_harness.child import Backoff, Child
from tidemill_harness.stack_plan import ChildSpec

_QUICK = Backoff(first=0.01, longest=0.02, attempts=2, steady=3600)


@dataclass
class Watched:
    """A child and what it told."""

    child: Child
    states: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, holds: Callable[[Child], bool]) -> None:
        while not holds(self.child):
            self.moved.clear()
            await asyncio.wait_for(self.moved.wait(), 60)


@contextlib.asynccontextmanager
async def _watched(spec: ChildSpec, tmp_path: Path) -> AsyncIterator[Watched]:
    read_end, write_end = os.pipe()
    watched: list[Watched] = []

    def changed() -> None:
        watched[0].states.append(watched[0].child.state)
        watched[0].moved.set()

    def report(line: str) -> None:
        watched[0].reports.append(line)

    child = Child(spec, dict(os.environ), read_end, tmp_path / f"{spec.name}.log", changed, report, _QUICK)
    watched.append(Watched(child))
    try:
        yield watched[0]
    finally:
        await child.stop()
        os.close(read_end)
        os.close(write_end)


async def test_a_child_is_ready_when_it_says_so_and_its_output_is_in_its_log(tmp_path: Path) -> None:
    async with _watched(stand_ins.spec("a", argument="seven"), tmp_path) as watched:
        await asyncio.wait_for(watched.child.ready(), 60)
        entry = watched.child.entry()
        assert (entry.state, entry.address, entry.restarts) == ("ready", "127.0.0.1:1", 0)
        assert watched.child.announcement["argument"] == "seven"
    assert stack_logs.last_line(watched.child.log) == f"hello from {entry.pid}"
    assert stand_ins.running([entry.pid]) == []
    assert watched.child.entry().pid == 0
    assert watched.states[-1] == "stopped"


@pytest.mark.requirement("stack:restart")
async def test_a_killed_child_starts_again_and_says_so(tmp_path: Path) -> None:
    async with _watched(stand_ins.spec("a"), tmp_path) as watched:
        await asyncio.wait_for(watched.child.ready(), 60)
        first = watched.child.entry().pid
        os.kill(first, signal.SIGKILL)
        await watched.until(lambda child: child.state == "ready" and child.restarts == 1)
        assert watched.child.entry().pid not in (0, first)
        assert "restarting" in watched.states
        assert watched.reports[0].startswith("a ended by SIGKILL; it starts again")


@pytest.mark.requirement("stack:restart")
async def test_a_child_that_keeps_dying_is_left_down_and_reported(tmp_path: Path) -> None:
    async with _watched(stand_ins.spec("a", "broken"), tmp_path) as watched:
        with pytest.raises(TidemillError, match=r"a exited with 3 before it was ready: the model is missing"):
            await asyncio.wait_for(watched.child.ready(), 60)
        await watched.until(lambda child: child.state == "failed")
        assert watched.child.entry().restarts == _QUICK.attempts
        assert "is left down" in watched.reports[-1]


async def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "STOP_SECONDS", 0.1)
    async with _watched(stand_ins.spec("a", "stubborn"), tmp_path) as watched:
        await asyncio.wait_for(watched.child.ready(), 60)
        pid = watched.child.entry().pid
    assert stand_ins.running([pid]) == []


async def test_a_child_that_never_gets_ready_is_killed_at_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "START_SECONDS", 0.1)
    async with _watched(stand_ins.spec("a", "silent"), tmp_path) as watched:
        with pytest.raises(TidemillError, match="ended by SIGKILL before it was ready"):
            await asyncio.wait_for(watched.child.ready(), 60)


async def test_a_program_that_does_not_exist_fails_by_name(tmp_path: Path) -> None:
    async with _watched(ChildSpec("a", "a", ("/no/such/program",)), tmp_path) as watched:
        with pytest.raises(TidemillError, match="'/no/such/program' can't be started"):
            await asyncio.wait_for(watched.child.ready(), 60)


async def test_stopping_during_the_start_leaves_no_process_and_no_descriptor(tmp_path: Path) -> None:
    before = stand_ins.open_descriptors()
    async with _watched(stand_ins.spec("a", "silent"), tmp_path) as watched:
        await watched.until(lambda child: child.state == "starting")
    assert watched.child.entry().pid == 0
    assert stand_ins.open_descriptors() == before


@pytest.mark.parametrize(("failures", "seconds"), [(1, 0.2), (2, 0.4), (5, 3.2), (7, 10.0), (50, 10.0)])
def test_the_backoff_doubles_up_to_its_longest(failures: int, seconds: float) -> None:
    assert Backoff().delay(failures) == pytest.approx(seconds)
