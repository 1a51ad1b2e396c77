"""How much runs at once. What is above a limit is refused in words that clients know how to retry on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway import metrics


class Limits:
    """Counts of turns and connections, each with a bound."""

    def __init__(self, max_turns: int, max_connections: int) -> None:
        self.max_turns = max_turns
        self.max_connections = max_connections
        self.turns = 0
        self.connections = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def idle(self) -> None:
        """Wait until nothing runs and nobody is connected."""
        await self._idle.wait()

    def _count(self, turns: int, connections: int) -> None:
        self.turns += turns
        self.connections += connections
        if self.turns or self.connections:
            self._idle.clear()
        else:
            self._idle.set()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Count a turn for as long as the block lasts. Raises TidemillError(OVERLOADED)."""
        if self.turns >= self.max_turns:
            raise TidemillError(Reason.OVERLOADED, f"{self.turns} turns run already")
        self._count(1, 0)
        metrics.RUNNING.inc()
        try:
            yield
        finally:
            self._count(-1, 0)
            metrics.RUNNING.dec()

    @property
    def connections_full(self) -> bool:
        """Whether no further connection may be opened."""
        return self.connections >= self.max_connections

    @contextmanager
    def connection(self) -> Iterator[None]:
        """Count a connection for as long as the block lasts."""
        self._count(0, 1)
        metrics.CONNECTIONS.inc()
        try:
            yield
        finally:
            self._count(0, -1)
            metrics.CONNECTIONS.dec()
