"""What a pool holds, as told by its events: a mirror on the event loop's side."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill_engine.events import BlockEvent, BlocksRemoved, BlocksStored


class HeldChains:
    """Digest to parent digest of every cached block; at most as many as the pool has."""

    def __init__(self) -> None:
        # A parent is stored before its children and removed after them, so insertion order is parents first.
        self._parents: dict[bytes, bytes] = {}

    def apply(self, events: Sequence[BlockEvent]) -> None:
        """Take a batch of events in."""
        for event in events:
            if isinstance(event, BlocksStored):
                parents = (event.parent_digest, *event.digests)
                self._parents.update(zip(event.digests, parents, strict=False))
            elif isinstance(event, BlocksRemoved):
                for digest in event.digests:
                    self._parents.pop(digest, None)
            else:
                self._parents.clear()

    def chains(self) -> list[BlocksStored]:
        """Everything held, as runs of consecutive blocks, parents first."""
        runs: list[tuple[bytes, list[bytes]]] = []
        for digest, parent in self._parents.items():
            if runs and runs[-1][1][-1] == parent:
                runs[-1][1].append(digest)
            else:
                runs.append((parent, [digest]))
        return [BlocksStored(parent, tuple(digests)) for parent, digests in runs]
