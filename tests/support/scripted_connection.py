"""A connection for the agent loop that plays turns without any I/O."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from tests.support.fake_gateway import call_item, text_item
from tidemill_harness.events import ItemDone, TurnDone, TurnEvent, Usage
from tidemill_harness.items import Item

Step = TurnEvent | Callable[[], Awaitable[None]]


class ScriptedConnection:
    """Plays one script per turn and keeps what it was asked.

    Attributes:
        asked: (items, tool_choice, forced) of each turn.
    """

    def __init__(self, *turns: Sequence[Step]) -> None:
        self.turns = list(turns)
        self.asked: list[tuple[list[Item], str, Sequence[Item] | None]] = []

    async def turn(
        self, items: Sequence[Item], tool_choice: str = "auto", forced: Sequence[Item] | None = None
    ) -> AsyncGenerator[TurnEvent, None]:
        self.asked.append((list(items), tool_choice, forced))
        for step in self.turns.pop(0):
            if callable(step):
                await step()
            else:
                yield step

    @property
    def choices(self) -> list[str]:
        return [choice for _, choice, _ in self.asked]


def done(incomplete: str = "") -> TurnDone:
    return TurnDone("r", Usage(10, 4, 2), 0.01, 0.02, incomplete)


def says(text: str, incomplete: str = "") -> list[Step]:
    return [ItemDone(text_item(text)), done(incomplete)]


def calls(*commands: str, name: str = "shell") -> list[Step]:
    items = (call_item(name, {"command": command}, f"call_{number}") for number, command in enumerate(commands))
    return [*(ItemDone(item) for item in items), done()]
