"""Which output may go out, and when: verdicts run beside generation, and a bad one ends the turn.

``stream``: text flows at once. ``hold``: nothing goes out before the verdict on it. In both, the end of a tool call waits for
the verdicts on everything before it and on its own arguments, since a client acts on it.
"""

from __future__ import annotations

import asyncio
from typing import Final, Literal

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway import metrics
from tidemill_gateway.backends import Deadline, Direction, Hop, Safety
from tidemill_gateway.output import ItemBegun, ItemDelta, ItemEnded, ItemKind, ParseEvent

CONTEXT_CHARACTERS: Final = 2000

SafetyMode = Literal["stream", "hold"]


def tail(text: str) -> str:
    """End of ``text``, as long as a check's context."""
    return text[-CONTEXT_CHARACTERS:]


class Guard:
    """Verdicts of one turn.

    ``tasks`` runs the checks: a refusal raises in them, and the group then cancels the turn wherever it stands. ``context`` is
    the text before the turn's input.
    """

    def __init__(
        self, safety: Safety, tasks: asyncio.TaskGroup, *, mode: SafetyMode, window: int, context: str, deadline: Deadline
    ) -> None:
        self.hops: list[Hop] = []
        self.output = ""
        self._safety = safety
        self._tasks = tasks
        self._holds = mode == "hold"
        self._window = window
        self._context = context
        self._deadline = deadline
        self._checks: list[asyncio.Task[None]] = []
        self._judged = 0
        self._kind: ItemKind | None = None
        self._held: list[ParseEvent] = []

    def input(self, text: str) -> None:
        """Start the check of the turn's input."""
        if text:
            self._start(self._context, text, Direction.INPUT)

    async def admit(self, events: list[ParseEvent]) -> list[ParseEvent]:
        """Events that may go out now, in order, of those held and these."""
        free: list[ParseEvent] = []
        for event in events:
            self._held.append(event)
            if await self._passes(event):
                free += self._held
                self._held = []
        return free

    async def finish(self) -> list[ParseEvent]:
        """Wait for every verdict; what was held may go out."""
        await self._settle()
        free, self._held = self._held, []
        return free

    async def _passes(self, event: ParseEvent) -> bool:
        """Whether what was held up to and with ``event`` may go out."""
        match event:
            case ItemBegun(kind):
                self._kind = kind
            case ItemDelta(text) if self._kind is not ItemKind.CALL:
                self.output += text
                if len(self.output) - self._judged >= self._window:
                    self._judge()
                    if self._holds:
                        await self._settle()
                        return True
            case ItemEnded(ItemKind.CALL, text):
                self._start(tail(self.output), text, Direction.TOOL_ARGUMENTS)
                await self._settle()
                return True
            case ItemEnded() if self._holds:
                await self._settle()
                return True
            case _:
                pass
        return not self._holds

    def _judge(self) -> None:
        """Start the check of output that no check has seen; the context makes windows overlap."""
        if self._judged < len(self.output):
            self._start(tail(self.output[: self._judged]), self.output[self._judged :], Direction.OUTPUT)
            self._judged = len(self.output)

    async def _settle(self) -> None:
        self._judge()
        while self._checks:
            await self._checks.pop()

    def _start(self, context: str, text: str, direction: Direction) -> None:
        self._checks.append(self._tasks.create_task(self._check(tail(context), text, direction)))

    async def _check(self, context: str, text: str, direction: Direction) -> None:
        verdict = await self._safety.check(context, text, direction, deadline=self._deadline)
        metrics.VERDICTS.labels(direction, "allowed" if verdict.allowed else "refused").inc()
        self.hops.append(verdict.hop)
        if not verdict.allowed:
            raise TidemillError(Reason.SAFETY_REFUSED, f"refused by the rule {verdict.rule!r} ({direction.replace('_', ' ')})")
