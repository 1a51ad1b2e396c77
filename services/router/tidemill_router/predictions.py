"""Blocks that a worker will soon hold because a turn was just sent to it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable


class Predictions:
    """Digests expected of each worker for ``seconds``, at most ``max_blocks`` a worker; the oldest go first.

    They steer siblings of a burst to one worker before its block events arrive. They are never told to callers as held.
    """

    def __init__(self, seconds: float, max_blocks: int) -> None:
        self.seconds = seconds
        self.max_blocks = max_blocks
        self._expiry: dict[str, OrderedDict[bytes, float]] = {}

    def add(self, worker: str, digests: Iterable[bytes], now: float) -> None:
        """``worker`` is about to hold ``digests``. ``now`` is in seconds and never goes back."""
        expected = self._expiry.setdefault(worker, OrderedDict())
        for digest in digests:
            expected[digest] = now + self.seconds
            expected.move_to_end(digest)
        while len(expected) > self.max_blocks:
            expected.popitem(last=False)

    def drop(self, worker: str) -> None:
        """Forget what was expected of ``worker``."""
        self._expiry.pop(worker, None)

    def deepest(self, upwards: Iterable[tuple[int, bytes]], workers: Collection[str], now: float) -> dict[str, int]:
        """Blocks of a chain that each worker is expected to hold; ``upwards`` gives (depth, digest), deepest first."""
        found = dict.fromkeys(workers, 0)
        live = {worker: expected for worker in workers if (expected := self._live(worker, now))}
        for depth, digest in upwards if live else ():
            for worker in [worker for worker, expected in live.items() if digest in expected]:
                found[worker] = depth
                del live[worker]
            if not live:
                break
        return found

    def _live(self, worker: str, now: float) -> OrderedDict[bytes, float]:
        expected = self._expiry.get(worker, OrderedDict())
        while expected and next(iter(expected.values())) <= now:
            expected.popitem(last=False)
        return expected
