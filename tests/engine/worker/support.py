"""A cache that tells its changes, without an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemill_engine.events import BlockEvent, BlocksCleared, BlocksRemoved, BlocksStored
from tidemill_engine.stats import EngineStats

ROOT = b"r" * 16


def digest(number: int) -> bytes:
    return number.to_bytes(16, "big")


class FakeCache:
    """Held blocks by number, each with the root as parent."""

    def __init__(self) -> None:
        self.held: set[bytes] = set()
        self.now = EngineStats(total_blocks=8)
        self.listeners: list[Callable[[Sequence[BlockEvent]], None]] = []

    def stats(self) -> EngineStats:
        return self.now

    def held_chains(self) -> list[BlocksStored]:
        return [BlocksStored(ROOT, (each,)) for each in sorted(self.held)]

    def subscribe(self, callback: Callable[[Sequence[BlockEvent]], None]) -> Callable[[], None]:
        self.listeners.append(callback)
        return lambda: self.listeners.remove(callback)

    def change(self, *events: BlockEvent) -> None:
        for event in events:
            apply(self.held, event)
        for listener in self.listeners:
            listener(events)


def apply(held: set[bytes], event: BlockEvent) -> None:
    match event:
        case BlocksStored(_, digests):
            held |= set(digests)
        case BlocksRemoved(digests):
            held -= set(digests)
        case BlocksCleared():
            held.clear()
