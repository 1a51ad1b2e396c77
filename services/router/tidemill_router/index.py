"""Which worker holds which KV block, by digest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Chain:
    """The full blocks of a prompt, as far as the caller names them.

    Attributes:
        parent: digest of the last full block before ``digests``; the chain's root when ``parent_blocks`` is 0.
        parent_blocks: number of full blocks up to and with ``parent``.
        digests: the full blocks after it, in order.
    """

    parent: bytes
    parent_blocks: int
    digests: tuple[bytes, ...]

    @property
    def blocks(self) -> int:
        """Number of full blocks."""
        return self.parent_blocks + len(self.digests)


@dataclass(slots=True)
class _Node:
    parent: bytes
    holders: set[str] = field(default_factory=set)


class BlockIndex:
    """Holders of each block and the link to its parent, at most ``max_blocks`` digests; the longest untouched go first.

    A block that nobody holds any more stays as a link, so that a shallower block of the same chain is still found. Workers
    evict the end of a chain first, so a held block stands for its ancestors; where that is wrong, the worker answers
    PREFIX_UNKNOWN.
    """

    def __init__(self, max_blocks: int) -> None:
        self.max_blocks = max_blocks
        self._nodes: OrderedDict[bytes, _Node] = OrderedDict()
        self._held: dict[str, set[bytes]] = {}

    def __len__(self) -> int:
        return sum(len(digests) for digests in self._held.values())

    def store(self, worker: str, parent: bytes, digests: Sequence[bytes]) -> None:
        """``worker`` holds ``digests`` now, a run of consecutive blocks after ``parent``."""
        held = self._held.setdefault(worker, set())
        for digest in digests:
            node = self._nodes.setdefault(digest, _Node(parent))
            node.holders.add(worker)
            held.add(digest)
            self._nodes.move_to_end(digest)
            parent = digest
        while len(self._nodes) > self.max_blocks:
            digest, node = self._nodes.popitem(last=False)
            for holder in node.holders:
                self._held[holder].discard(digest)

    def remove(self, worker: str, digests: Sequence[bytes]) -> None:
        """``worker`` no longer holds ``digests``; those that it did not hold are passed over."""
        held = self._held.get(worker, set())
        for digest in digests:
            if digest in held:
                held.discard(digest)
                self._nodes[digest].holders.discard(worker)

    def clear(self, worker: str) -> None:
        """``worker`` holds nothing any more."""
        for digest in self._held.pop(worker, set()):
            self._nodes[digest].holders.discard(worker)

    def holders(self, digest: bytes) -> frozenset[str]:
        """Workers that hold ``digest``."""
        node = self._nodes.get(digest)
        return frozenset(node.holders) if node else frozenset()

    def upwards(self, chain: Chain) -> Iterator[tuple[int, bytes]]:
        """(blocks up to and with it, digest) from the deepest block of ``chain`` upwards, as far as links are known."""
        depth = chain.blocks
        for digest in reversed(chain.digests):
            yield depth, digest
            depth -= 1
        digest = chain.parent
        while depth > 0:
            yield depth, digest
            node = self._nodes.get(digest)
            if node is None:
                return
            digest, depth = node.parent, depth - 1

    def deepest(self, chain: Chain, workers: Collection[str]) -> dict[str, int]:
        """Blocks of ``chain`` that each of ``workers`` holds, counted from the first; 0 when none."""
        missing = set(workers)
        found = dict.fromkeys(workers, 0)
        for depth, digest in self.upwards(chain):
            if not missing:
                break
            node = self._nodes.get(digest)
            for worker in missing & node.holders if node else ():
                found[worker] = depth
                missing.discard(worker)
        return found
