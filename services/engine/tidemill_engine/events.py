"""What changes in a block pool's cache, as others index it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """Consecutive blocks of one chain are held now.

    Attributes:
        parent_digest: digest of the block before the first one; the chain's root for a first block.
        digests: digests of the blocks, in order, 16 bytes each.
    """

    parent_digest: bytes
    digests: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class BlocksRemoved:
    """Blocks were evicted; a block goes before its parent."""

    digests: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class BlocksCleared:
    """Nothing is held any more."""


BlockEvent = BlocksStored | BlocksRemoved | BlocksCleared
