"""What a router is still to hear of one worker's cache and load."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

from tidemill_engine.events import BlockEvent, BlocksCleared, BlocksRemoved, BlocksStored
from tidemill_engine.stats import EngineStats

MAX_QUEUED_EVENTS = 8192
MAX_DIGESTS_PER_MESSAGE = 16384


class Source(Protocol):
    """The part of the engine that a feed reads."""

    def stats(self) -> EngineStats:
        """Load."""
        ...

    def held_chains(self) -> list[BlocksStored]:
        """All cached blocks."""
        ...


class Feed:
    """Block events of one router's stream, numbered from 1, and the wish to report load.

    A queue that grows beyond its bound is dropped and replaced by a fresh start: the cache is declared empty, then all held
    blocks are told, as at the beginning of a stream.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.draining = False
        self._queue: deque[BlockEvent] = deque()
        self._fresh_start = True
        self._next = 1
        self._changed = asyncio.Event()

    def push(self, events: Sequence[BlockEvent]) -> None:
        """Tell ``events``, which follow all earlier ones."""
        if len(self._queue) + len(events) > MAX_QUEUED_EVENTS:
            self._fresh_start = True
        else:
            self._queue.extend(events)
        self.touch()

    def drain(self) -> None:
        """Say that the worker drains."""
        self.draining = True
        self.touch()

    def touch(self) -> None:
        """Report load soon."""
        self._changed.set()

    async def changed(self, seconds: float) -> None:
        """Wait for something to tell, ``seconds`` at most."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    def take(self) -> Iterator[tuple[int, list[BlockEvent]]]:
        """(number of the first event, events) of each message to send now."""
        if self._fresh_start:
            self._fresh_start = False
            self._queue.clear()
            self._queue.extend([BlocksCleared(), *self.source.held_chains()])
        while self._queue:
            number, batch = self._next, self._batch()
            self._next += len(batch)
            yield number, batch

    def _batch(self) -> list[BlockEvent]:
        batch, size = [self._queue.popleft()], 0
        while self._queue and size < MAX_DIGESTS_PER_MESSAGE:
            event = self._queue.popleft()
            size += len(event.digests) if isinstance(event, BlocksStored | BlocksRemoved) else 0
            batch.append(event)
        return batch
