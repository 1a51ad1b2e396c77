from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.support.fake_gateway import call_item, text_item
from tests.support.scripted_connection import ScriptedConnection, Step, calls, done, says
from tidemill_common.errors import Reason, TidemillError
from tidemill_harness import prompts
from tidemill_harness.agent import Agent, Answer
from tidemill_harness.events import AgentEvent, ItemDone, Resent, TextDelta, ToolFinished, ToolStarted, TurnDone
from tidemill_harness.interrupts import NoAnswer, StepLimitReached, TimeLimitReached
from tidemill_harness.items import ToolCall, message
from tidemill_harness.limits import Limits


class FakeTools:
    """Answers each call with its arguments; a call may wait for a gate."""

    def __init__(self, gates: dict[str, asyncio.Event] | None = None, safe: bool = True) -> None:
        self.gates = gates or {}
        self.safe = safe
        self.log: list[str] = []
        self.seen: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def _note(self, what: str) -> None:
        self.log.append(what)
        self.seen[what].set()

    async def until(self, what: str) -> None:
        await asyncio.wait_for(self.seen[what].wait(), 5)

    def parallel_safe(self, name: str) -> bool:
        return self.safe and name != "edit_file"

    async def run(self, call: ToolCall) -> str:
        self._note(f"start {call.call_id}")
        try:
            if gate := self.gates.get(call.call_id):
                await gate.wait()
        except asyncio.CancelledError:
            self._note(f"cancelled {call.call_id}")
            raise
        self._note(f"end {call.call_id}")
        return f"output of {call.arguments}"


class Run:
    """One agent with everything it tells."""

    def __init__(self, *turns: Sequence[Step], tools: FakeTools | None = None, **options: Any) -> None:
        self.connection = ScriptedConnection(*turns)
        self.tools = tools or FakeTools()
        self.events: list[AgentEvent] = []
        self.agent = Agent(self.connection, self.tools, self.events.append, **options)

    async def task(self) -> Answer:
        return await self.agent.task([message("user", "go")])

    def of(self, kind: type[AgentEvent]) -> list[AgentEvent]:
        return [event for event in self.events if isinstance(event, kind)]


async def test_a_turn_without_calls_is_the_answer() -> None:
    run = Run(says("hello"))
    answer = await run.task()
    assert (answer.text, answer.steps, answer.usage.cached) == ("hello", 1, 4)


@pytest.mark.requirement("harness:loop")
async def test_outputs_are_the_next_turns_only_input() -> None:
    run = Run(calls("ls"), calls("pwd"), says("done"))
    answer = await run.task()
    sent = [items for items, _, _ in run.connection.asked]
    assert sent[0] == [message("user", "go")]
    assert [item["output"] for item in sent[1]] == ['output of {"command": "ls"}']
    assert [item["output"] for item in sent[2]] == ['output of {"command": "pwd"}']
    assert answer.steps == 3
    assert answer.usage.input == 30


@pytest.mark.requirement("harness:overlap")
async def test_a_call_runs_while_its_turn_still_streams() -> None:
    tools = FakeTools()

    run = Run([ItemDone(call_item("shell", {}, "c")), lambda: tools.until("end c"), done()], says("done"), tools=tools)
    await run.task()
    finished = run.events.index(run.of(ToolFinished)[0])
    assert finished < run.events.index(run.of(TurnDone)[0])


async def test_parallel_safe_calls_run_side_by_side_and_answer_in_order() -> None:
    gates = {"call_0": asyncio.Event(), "call_1": asyncio.Event()}
    tools = FakeTools(gates)

    async def second_first() -> None:
        await tools.until("start call_1")
        gates["call_1"].set()
        gates["call_0"].set()

    first, second, end = calls("a", "b")
    run = Run([first, second, second_first, end], says("done"), tools=tools)
    await run.task()
    assert tools.log[:2] == ["start call_0", "start call_1"]
    assert [item["call_id"] for item in run.connection.asked[1][0]] == ["call_0", "call_1"]


async def test_a_call_that_is_not_parallel_safe_runs_alone_in_its_place() -> None:
    items = [call_item("shell", {}, "a"), call_item("edit_file", {}, "b"), call_item("shell", {"x": 1}, "c")]
    run = Run([*(ItemDone(item) for item in items), done()], says("done"))
    await run.task()
    assert run.tools.log == ["start a", "end a", "start b", "end b", "start c", "end c"]


@pytest.mark.requirement("harness:require-tool-first")
async def test_only_the_first_step_requires_a_tool_when_the_profile_says_so() -> None:
    run = Run(calls("ls"), says("done"), says("again"), require_tool_first=True)
    await run.task()
    assert run.connection.choices == ["required", "auto"]
    await run.task()
    assert run.connection.choices[2] == "required"


@pytest.mark.requirement("harness:step-limit")
async def test_after_the_step_limit_the_model_is_asked_to_answer_without_tools() -> None:
    run = Run(calls("a"), calls("b"), says("all I know"), limits=Limits(steps=2))
    answer = await run.task()
    assert run.connection.choices == ["auto", "auto", "none"]
    assert run.connection.asked[2][0][-1] == message("user", prompts.ANSWER_AT_LIMIT)
    assert answer.text == "all I know"


async def test_a_model_that_calls_on_after_the_limit_ends_the_task_and_the_call_does_not_run() -> None:
    run = Run(calls("a"), calls("b"), limits=Limits(steps=1))
    with pytest.raises(StepLimitReached):
        await run.task()
    assert len(run.of(ToolStarted)) == 1


@pytest.mark.requirement("harness:repeats")
async def test_a_third_identical_call_is_not_run_and_a_fourth_asks_for_the_answer() -> None:
    run = Run(*[calls("ls")] * 4, says("stuck"))
    answer = await run.task()
    assert len(run.of(ToolStarted)) == 2
    assert run.connection.asked[3][0][0]["output"] == prompts.REPEATED.format(times=3)
    assert run.connection.asked[4][0][-1] == message("user", prompts.ANSWER_AFTER_REPEATS)
    assert run.connection.choices[4] == "none"
    assert answer.text == "stuck"


async def test_another_call_in_between_starts_the_count_anew() -> None:
    run = Run(calls("a"), calls("a"), calls("b"), calls("a"), calls("a"), says("done"))
    await run.task()
    assert len(run.of(ToolStarted)) == 5


async def test_an_empty_turn_is_asked_for_text_once() -> None:
    run = Run([done()], says("words"))
    assert (await run.task()).text == "words"
    assert run.connection.asked[1][0] == [message("user", prompts.ANSWER_IN_TEXT)]


async def test_two_empty_turns_are_no_answer() -> None:
    run = Run([done()], [done("max_output_tokens")])
    with pytest.raises(NoAnswer, match="max_output_tokens"):
        await run.task()


async def test_an_answer_that_was_cut_says_so() -> None:
    run = Run(says("half an ans", "max_output_tokens"))
    assert (await run.task()).incomplete == "max_output_tokens"


@pytest.mark.requirement("harness:time-limit")
async def test_the_time_limit_ends_a_running_call() -> None:
    tools = FakeTools({"call_0": asyncio.Event()})
    run = Run(calls("sleep"), tools=tools, limits=Limits(seconds=0.05))
    with pytest.raises(TimeLimitReached):
        await run.task()
    assert tools.log == ["start call_0", "cancelled call_0"]


async def test_a_failing_turn_leaves_no_call_running() -> None:
    tools = FakeTools({"c": asyncio.Event()})

    async def fail() -> None:
        await tools.until("start c")
        raise TidemillError(Reason.WORKER_LOST, "gone")

    run = Run([ItemDone(call_item("shell", {}, "c")), fail], tools=tools)
    with pytest.raises(TidemillError):
        await run.task()
    assert tools.log == ["start c", "cancelled c"]


async def test_text_before_a_resend_is_void() -> None:
    run = Run([TextDelta("hal"), ItemDone(text_item("half")), Resent("lost"), ItemDone(text_item("whole")), done()])
    assert (await run.task()).text == "whole"


@pytest.mark.requirement("harness:forced-trajectory")
async def test_a_trajectory_forces_one_output_per_turn_until_it_ends() -> None:
    trajectory = [[call_item("shell", {})], [text_item("x")]]
    run = Run(calls("a"), says("x"), says("free"), trajectory=trajectory)
    await run.task()
    await run.task()
    assert [forced for _, _, forced in run.connection.asked] == [*trajectory, None]


@pytest.mark.parametrize("made", [Limits, lambda: Limits(steps=0)])
async def test_no_step_limit_below_the_default(made: Callable[[], Limits]) -> None:
    run = Run(*(calls(str(number)) for number in range(19)), says("done"), limits=made())
    assert (await run.task()).steps == 20
