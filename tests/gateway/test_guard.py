from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway.backends import Deadline, Direction, Hop, Verdict
from tidemill_gateway.guard import CONTEXT_CHARACTERS, Guard, SafetyMode
from tidemill_gateway.output import ItemBegun, ItemDelta, ItemEnded, ItemKind, ParseEvent
from tidemill_gateway.structured import task_group

HOP = Hop("safety", "n", "t", 0.0, 1)
MESSAGE = ItemBegun(ItemKind.MESSAGE)
CALL = ItemBegun(ItemKind.CALL)


@dataclass
class FakeSafety:
    """Refuses text with ``bad`` in it; verdicts of a direction in ``gates`` wait."""

    bad: str = "BAD"
    gates: dict[Direction, asyncio.Event] = field(default_factory=dict)
    asked: list[tuple[str, str, Direction]] = field(default_factory=list)

    async def check(self, context: str, text: str, direction: Direction, *, deadline: Deadline) -> Verdict:
        self.asked.append((context, text, direction))
        if direction in self.gates:
            await self.gates[direction].wait()
        return Verdict(self.bad not in text, "rule", HOP)


def make(safety: FakeSafety, tasks: asyncio.TaskGroup, mode: SafetyMode = "stream", context: str = "") -> Guard:
    return Guard(safety, tasks, mode=mode, window=10, context=context, deadline=Deadline.after(10))


def deltas(*texts: str) -> list[ParseEvent]:
    return [MESSAGE, *(ItemDelta(text) for text in texts)]


async def test_stream_mode_lets_text_go_at_once() -> None:
    safety = FakeSafety(gates={Direction.INPUT: asyncio.Event(), Direction.OUTPUT: asyncio.Event()})
    async with task_group() as tasks:
        guard = make(safety, tasks)
        guard.input("question")
        events = deltas("a" * 30, "b")
        assert await guard.admit(events) == events
        for gate in safety.gates.values():
            gate.set()
        assert await guard.finish() == []


async def test_windows_follow_each_other_and_carry_what_stands_before() -> None:
    safety = FakeSafety()
    async with task_group() as tasks:
        guard = make(safety, tasks)
        await guard.admit(deltas("0123456789", "abcdefghij", "xyz"))
        await guard.finish()
    assert safety.asked == [
        ("", "0123456789", Direction.OUTPUT),
        ("0123456789", "abcdefghij", Direction.OUTPUT),
        ("0123456789abcdefghij", "xyz", Direction.OUTPUT),
    ]
    assert len(guard.hops) == 3


async def test_hold_mode_releases_window_by_window() -> None:
    safety = FakeSafety(gates={Direction.INPUT: asyncio.Event()})
    async with task_group() as tasks:
        guard = make(safety, tasks, "hold")
        guard.input("question")
        assert await guard.admit(deltas("abc")) == []
        safety.gates[Direction.INPUT].set()
        assert await guard.admit([ItemDelta("defghij")]) == [*deltas("abc"), ItemDelta("defghij")]
        assert await guard.admit([ItemDelta("k")]) == []
        assert await guard.finish() == [ItemDelta("k")]


async def test_hold_mode_never_releases_what_is_refused() -> None:
    released: list[ParseEvent] = []
    with pytest.raises(TidemillError) as error:
        async with task_group() as tasks:
            guard = make(FakeSafety(), tasks, "hold")
            released += await guard.admit(deltas("some BAD words"))
    assert error.value.reason is Reason.SAFETY_REFUSED
    assert released == []


@pytest.mark.parametrize("mode", ["stream", "hold"])
async def test_a_call_ends_after_every_verdict_before_it(mode: SafetyMode) -> None:
    gates = {direction: asyncio.Event() for direction in (Direction.INPUT, Direction.TOOL_ARGUMENTS)}
    safety = FakeSafety(gates=gates)
    end = ItemEnded(ItemKind.CALL, '{"cmd": "ls"}')
    async with task_group() as tasks:
        guard = make(safety, tasks, mode)
        guard.input("question")
        admitted = asyncio.ensure_future(guard.admit([CALL, ItemDelta('{"cmd": "ls"}'), end]))
        gates[Direction.TOOL_ARGUMENTS].set()
        await asyncio.sleep(0)
        assert not admitted.done()
        gates[Direction.INPUT].set()
        assert (await admitted)[-1] is end
    assert ("", '{"cmd": "ls"}', Direction.TOOL_ARGUMENTS) in safety.asked


async def test_arguments_are_not_judged_as_text() -> None:
    safety = FakeSafety()
    async with task_group() as tasks:
        guard = make(safety, tasks)
        await guard.admit([CALL, ItemDelta("x" * 50), ItemEnded(ItemKind.CALL, "x" * 50)])
        await guard.finish()
    assert [direction for _, _, direction in safety.asked] == [Direction.TOOL_ARGUMENTS]
    assert guard.output == ""


async def test_a_refusal_cancels_the_turn_wherever_it_stands() -> None:
    with pytest.raises(TidemillError) as error:
        async with task_group() as tasks:
            make(FakeSafety(), tasks).input("BAD")
            await asyncio.Event().wait()
    assert error.value.reason is Reason.SAFETY_REFUSED
    assert "rule" in error.value.message


async def test_context_is_bounded() -> None:
    safety = FakeSafety()
    async with task_group() as tasks:
        make(safety, tasks, context="c" * 10_000).input("question")
    assert len(safety.asked[0][0]) == CONTEXT_CHARACTERS


async def test_empty_input_needs_no_verdict() -> None:
    safety = FakeSafety()
    async with task_group() as tasks:
        guard = make(safety, tasks)
        guard.input("")
        assert await guard.finish() == []
    assert safety.asked == []
