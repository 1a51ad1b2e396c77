"""The tokens of a conversation and the digests of their blocks, as a list of segments that share what came before.

Appending costs what is appended: a segment holds its own packed ids, the digests of the blocks that they complete and the tail
of less than a block; everything before is reached through its parent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tidemill_common import digests
from tidemill_common.digests import DIGEST_BYTES
from tidemill_common.tokens import TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class Chain:
    """One segment and, through ``parent``, all before it.

    Attributes:
        parent: segment before this one; None at the root.
        root: digest at the root of the chain.
        block_size: tokens per block.
        packed: this segment's token ids, packed little-endian uint32.
        start: tokens before this segment.
        block_digests: digests of the blocks that this segment completes, in order.
        first_block: full blocks before those.
        tail: packed ids after the last full block; less than a block.
    """

    parent: Chain | None = field(repr=False)
    root: bytes
    block_size: int
    packed: bytes = b""
    start: int = 0
    block_digests: tuple[bytes, ...] = ()
    first_block: int = 0
    tail: bytes = b""

    @classmethod
    def empty(cls, root: bytes, block_size: int) -> Chain:
        """A chain without tokens."""
        return cls(None, root, block_size)

    def extend(self, packed: bytes) -> Chain:
        """This chain with ``packed`` ids after it. Raises ValueError when their length is no multiple of 4."""
        if len(packed) % TOKEN_BYTES:
            raise ValueError(f"packed ids have {len(packed)} bytes, no multiple of {TOKEN_BYTES}")
        pending = self.tail + packed
        completed = tuple(digests.chain(self.last_digest, pending, self.block_size))
        tail = pending[len(completed) * self.block_bytes :]
        return Chain(self, self.root, self.block_size, packed, self.length, completed, self.block_count, tail)

    @property
    def block_bytes(self) -> int:
        """Packed bytes of a block."""
        return self.block_size * TOKEN_BYTES

    @property
    def length(self) -> int:
        """Tokens up to and with this segment."""
        return self.start + len(self.packed) // TOKEN_BYTES

    @property
    def block_count(self) -> int:
        """Full blocks up to and with this segment."""
        return self.first_block + len(self.block_digests)

    @property
    def last_digest(self) -> bytes:
        """Digest of the last full block; the root when there is none."""
        return self.digest_at(self.block_count)

    @property
    def held_bytes(self) -> int:
        """Bytes that this segment alone takes."""
        return len(self.packed) + len(self.tail) + len(self.block_digests) * DIGEST_BYTES

    def segments(self) -> Iterator[Chain]:
        """This segment, then its ancestors."""
        here: Chain | None = self
        while here is not None:
            yield here
            here = here.parent

    def digest_at(self, blocks: int) -> bytes:
        """Digest of the ``blocks``-th full block; the root for 0. Raises ValueError when there are fewer."""
        if blocks == 0:
            return self.root
        for segment in self.segments():
            if segment.first_block < blocks <= segment.block_count:
                return segment.block_digests[blocks - segment.first_block - 1]
        raise ValueError(f"{blocks} blocks asked of {self.block_count}")

    def digests_after(self, blocks: int) -> list[bytes]:
        """Digests of the full blocks after the first ``blocks``."""
        parts: list[tuple[bytes, ...]] = []
        for segment in self.segments():
            if segment.block_count <= blocks:
                break
            parts.append(segment.block_digests[max(0, blocks - segment.first_block) :])
        return [digest for part in reversed(parts) for digest in part]

    def packed_after(self, tokens: int) -> bytes:
        """Packed ids after the first ``tokens``."""
        parts: list[bytes] = []
        for segment in self.segments():
            if segment.length <= tokens:
                break
            parts.append(segment.packed[max(0, tokens - segment.start) * TOKEN_BYTES :])
        return b"".join(reversed(parts))
