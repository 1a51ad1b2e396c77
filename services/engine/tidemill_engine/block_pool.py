"""The block pool: which KV block holds what, who uses it, and which goes next. Pure bookkeeping, no tensors.

A block is free (no sequence holds it; it may still be cached) or used (a reference count above 0). Full blocks are registered
under their digest, together with the tokens they hold: a hit compares both, so a digest collision never mixes two prompts.
Free blocks are reused least recently used first, and a sequence gives its tail back before its head, so a chain dies from its
end. The idea follows vLLM's and nano-vllm's block managers; the invariant that every registered block's parent is registered
is ours.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidemill_common.digests import block_digest
from tidemill_common.tokens import TOKEN_BYTES
from tidemill_engine.events import BlockEvent, BlocksCleared, BlocksRemoved, BlocksStored


@dataclass(frozen=True, slots=True)
class CachedBlock:
    """What a registered block holds.

    Attributes:
        digest: its name.
        parent: digest of the block before it, or the chain's root.
        packed_ids: its tokens, packed little-endian uint32.
        depth: its index in the chain.
    """

    digest: bytes
    parent: bytes
    packed_ids: bytes
    depth: int


class BlockPool:
    """``block_count`` blocks of ``block_size`` tokens, numbered from 0."""

    def __init__(self, block_count: int, block_size: int, digest: Callable[[bytes, bytes], bytes] = block_digest) -> None:
        if block_count < 1 or block_size < 1:
            raise ValueError(f"a pool needs blocks, got {block_count} of {block_size} tokens")
        self.total_blocks = block_count
        self.block_size = block_size
        self._digest = digest
        self._references = [0] * block_count
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(block_count))
        self._cached: dict[int, CachedBlock] = {}
        self._by_digest: dict[bytes, int] = {}
        self._events: list[BlockEvent] = []

    @property
    def free_blocks(self) -> int:
        """Blocks that no sequence holds, cached ones among them."""
        return len(self._free)

    @property
    def used_blocks(self) -> int:
        """Blocks that sequences hold; 0 when none runs, else something leaks."""
        return self.total_blocks - len(self._free)

    @property
    def cached_digests(self) -> frozenset[bytes]:
        """Digests of all cached blocks."""
        return frozenset(self._by_digest)

    def match(self, root: bytes, packed_ids: bytes, limit: int) -> list[int]:
        """The longest cached run of at most ``limit`` full blocks of ``packed_ids`` after ``root``; takes no reference."""
        width = self.block_size * TOKEN_BYTES
        found: list[int] = []
        parent = root
        for start in range(0, min(limit, len(packed_ids) // width) * width, width):
            tokens = packed_ids[start : start + width]
            digest = self._digest(parent, tokens)
            block = self._by_digest.get(digest)
            if block is None or not self._holds(block, parent, tokens):
                break
            found.append(block)
            parent = digest
        return found

    def prefix(self, root: bytes, digest: bytes, count: int) -> bytes | None:
        """Packed tokens of the ``count`` blocks from ``root`` to ``digest``; None when that chain is not held whole."""
        parts: list[bytes] = []
        while len(parts) < count:
            block = self._by_digest.get(digest)
            if block is None:
                return None
            parts.append(self._cached[block].packed_ids)
            digest = self._cached[block].parent
        return b"".join(reversed(parts)) if digest == root else None

    def digest_of(self, block: int) -> bytes:
        """Digest of a cached block. Raises KeyError for one that is not cached."""
        return self._cached[block].digest

    def unused_among(self, blocks: Sequence[int]) -> int:
        """How many of ``blocks`` no sequence holds: sharing them takes that many from the free ones."""
        return sum(not self._references[block] for block in blocks)

    def share(self, blocks: Sequence[int]) -> None:
        """Take one more reference on each of ``blocks``."""
        for block in blocks:
            self._references[block] += 1
            self._free.pop(block, None)

    def allocate(self, count: int) -> list[int] | None:
        """``count`` blocks of unspecified content, evicting the least recently used; None when fewer are free."""
        if count > len(self._free):
            return None
        blocks = [self._free.popitem(last=False)[0] for _ in range(count)]
        if removed := tuple(self._forget(block) for block in blocks if block in self._cached):
            self._events.append(BlocksRemoved(removed))
        for block in blocks:
            self._references[block] = 1
        return blocks

    def release(self, blocks: Sequence[int]) -> None:
        """Give one reference on each of ``blocks`` back; they stand in chain order. Raises ValueError for one not held."""
        for block in reversed(blocks):
            if not self._references[block]:
                raise ValueError(f"block {block} is released but not held")
            self._references[block] -= 1
            if not self._references[block]:
                self._free[block] = None
                self._free.move_to_end(block, last=block in self._cached)

    def register(self, block: int, parent: bytes, packed_ids: bytes) -> tuple[int, bytes] | None:
        """Cache a full, computed block that the caller holds. Returns the block to use from now on, and its digest.

        When an equal block is cached already, the caller's reference moves to that one. None means that another content has
        the same digest: the block stays private, and nothing may be registered after it.
        """
        digest = self._digest(parent, packed_ids)
        other = self._by_digest.get(digest)
        if other is None:
            depth = self._cached[self._by_digest[parent]].depth + 1 if parent in self._by_digest else 0
            self._cached[block] = CachedBlock(digest, parent, packed_ids, depth)
            self._by_digest[digest] = block
            self._note_stored(parent, digest)
            return block, digest
        if not self._holds(other, parent, packed_ids):
            return None
        if other != block:
            self.share([other])
            self.release([block])
        return other, digest

    def clear(self) -> None:
        """Forget every cached block that no sequence holds."""
        removed = tuple(self._forget(block) for block in list(self._free) if block in self._cached)
        if not self._cached:
            self._events.append(BlocksCleared())
        elif removed:
            self._events.append(BlocksRemoved(removed))

    def drain_events(self) -> list[BlockEvent]:
        """Events since the last call, in order."""
        events, self._events = self._events, []
        return events

    def check_integrity(self) -> None:
        """Raise RuntimeError naming the first broken invariant."""
        for block, count in enumerate(self._references):
            _require((count == 0) == (block in self._free), f"block {block} has {count} references and is free or not wrongly")
        _require(len(self._cached) == len(self._by_digest), "cached blocks and digests differ in number")
        for block, entry in self._cached.items():
            _require(self._by_digest.get(entry.digest) == block, f"block {block} is not the one its digest names")
            _require(entry.digest == self._digest(entry.parent, entry.packed_ids), f"block {block} has a wrong digest")
            if entry.depth:
                _require(entry.parent in self._by_digest, f"block {block} outlives its parent")
                above = self._by_digest[entry.parent]
                _require(self._references[above] >= bool(self._references[block]), f"block {block} is used, its parent is not")

    def _holds(self, block: int, parent: bytes, packed_ids: bytes) -> bool:
        entry = self._cached[block]
        return entry.parent == parent and entry.packed_ids == packed_ids

    def _forget(self, block: int) -> bytes:
        digest = self._cached.pop(block).digest
        del self._by_digest[digest]
        return digest

    def _note_stored(self, parent: bytes, digest: bytes) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(last, BlocksStored) and last.digests[-1] == parent:
            self._events[-1] = BlocksStored(last.parent_digest, (*last.digests, digest))
        else:
            self._events.append(BlocksStored(parent, (digest,)))


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise RuntimeError(message)
