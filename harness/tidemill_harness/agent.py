"""The agent loop: a model turn, its calls, their outputs as the next turn's input, until a turn answers. Does no I/O itself."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tidemill_harness import prompts
from tidemill_harness.calls import Calls
from tidemill_harness.events import (
    AgentEvent,
    ItemDone,
    ItemsAdded,
    Notice,
    Resent,
    StepFinished,
    StepStarted,
    ToolFinished,
    ToolStarted,
    TurnDone,
    TurnEvent,
    Usage,
    Waiting,
)
from tidemill_harness.interrupts import NoAnswer, StepLimitReached, TimeLimitReached
from tidemill_harness.items import Item, ToolCall, call_of, message, text_of
from tidemill_harness.limits import Limits
from tidemill_harness.repeats import RepeatGuard

Observe = Callable[[AgentEvent], None]


class Connection(Protocol):
    """What runs a model turn."""

    def turn(
        self, items: Sequence[Item], tool_choice: str = "auto", forced: Sequence[Item] | None = None
    ) -> AsyncGenerator[TurnEvent, None]:
        """Add ``items`` to the conversation and stream the model's turn; the last event is a TurnDone."""
        ...


class Tools(Protocol):
    """What runs calls."""

    def parallel_safe(self, name: str) -> bool:
        """Whether calls of ``name`` may run beside each other; any other call runs alone, in its place."""
        ...

    async def run(self, call: ToolCall) -> str:
        """The call's output as the model reads it. A call that fails says so in it."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """How a task ended.

    Attributes:
        text: the model's answer.
        steps: model turns taken.
        usage: tokens of all of them.
        incomplete: why the answer was cut, or empty.
    """

    text: str
    steps: int
    usage: Usage
    incomplete: str = ""


@dataclass(slots=True)
class _Turn:
    """What came of one model turn."""

    may_call: bool
    disobeyed: bool = False
    texts: list[str] = field(default_factory=list)
    outputs: list[Item] = field(default_factory=list)
    incomplete: str = ""

    @property
    def text(self) -> str:
        return "\n".join(text for text in self.texts if text).strip()


class Agent:
    """Runs tasks in one conversation.

    Attributes:
        step: model turns of the current task.
        usage: their tokens.
    """

    def __init__(
        self,
        connection: Connection,
        tools: Tools,
        observe: Observe,
        limits: Limits | None = None,
        require_tool_first: bool = False,
        trajectory: Iterable[Sequence[Item]] = (),
    ) -> None:
        self.step = 0
        self.usage = Usage()
        self._connection = connection
        self._tools = tools
        self._observe = observe
        self._limits = limits or Limits()
        self._first_choice = "required" if require_tool_first else "auto"
        self._trajectory = iter(trajectory)
        self._repeats = RepeatGuard(self._limits.repeats)

    async def task(self, items: Sequence[Item]) -> Answer:
        """Work on ``items`` until the model answers. Raises Interrupt and TidemillError."""
        self.step, self.usage = 0, Usage()
        self._repeats = RepeatGuard(self._limits.repeats)
        async with _within(self._limits.seconds):
            return await self._loop(list(items))

    async def _loop(self, items: list[Item]) -> Answer:
        choice, asked_for_text = self._first_choice, False
        while True:
            turn = await self._turn(items, choice)
            if turn.disobeyed:
                raise StepLimitReached(self.step)
            if turn.text and not turn.outputs:
                return Answer(turn.text, self.step, self.usage, turn.incomplete)
            if asked_for_text and not turn.outputs:
                raise NoAnswer(turn.incomplete)
            items, choice, asked_for_text = turn.outputs, "auto", not turn.outputs
            if nudge := self._nudge(turn):
                items, choice = [*items, message("user", nudge)], "none"

    def _nudge(self, turn: _Turn) -> str:
        """What to tell the model when it has to answer now, or nothing."""
        if not turn.outputs:
            return prompts.ANSWER_IN_TEXT
        if self._repeats.refused > 1:
            return prompts.ANSWER_AFTER_REPEATS
        if self._limits.steps and self.step >= self._limits.steps:
            return prompts.ANSWER_AT_LIMIT
        return ""

    async def _turn(self, items: list[Item], choice: str) -> _Turn:
        """One model turn and its calls, each started as soon as it is complete."""
        self.step += 1
        forced = next(self._trajectory, None)
        self._observe(ItemsAdded(tuple(items)))
        self._observe(StepStarted(self.step, choice, forced is not None))
        turn = _Turn(may_call=choice != "none")
        async with Calls() as calls:
            async with contextlib.aclosing(self._connection.turn(items, choice, forced)) as events:
                async for event in events:
                    self._observe(event)
                    self._take(event, turn, calls)
            turn.outputs = await calls.outputs()
        return turn

    def _take(self, event: TurnEvent, turn: _Turn, calls: Calls) -> None:
        if isinstance(event, ItemDone):
            turn.texts.append(text_of(event.item))
            if call := call_of(event.item):
                turn.disobeyed |= not turn.may_call
                if turn.may_call:
                    self._start(call, calls)
        elif isinstance(event, Resent | Waiting):
            turn.texts.clear()
        elif isinstance(event, TurnDone):
            turn.incomplete = event.incomplete
            self.usage += event.usage
            self._observe(StepFinished(self.step, event))

    def _start(self, call: ToolCall, calls: Calls) -> None:
        if times := self._repeats.admit(call):
            self._observe(Notice(f"{call.name} not run: the same call {times} times in a row"))
            calls.answer(call, prompts.REPEATED.format(times=times))
        else:
            calls.start(call, self._run, alone=not self._tools.parallel_safe(call.name))

    async def _run(self, call: ToolCall) -> str:
        self._observe(ToolStarted(call))
        started = time.monotonic()
        output = await self._tools.run(call)
        self._observe(ToolFinished(call, output, time.monotonic() - started))
        return output


@contextlib.asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    """Raises TimeLimitReached when the block takes longer; 0 = no limit."""
    timeout = asyncio.timeout(seconds or None)
    try:
        async with timeout:
            yield
    except TimeoutError as error:
        if timeout.expired():
            raise TimeLimitReached(seconds) from error
        raise
