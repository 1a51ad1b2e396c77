"""Computed KV, cut into pieces that a message may carry."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill_engine.outputs import KvBlocks

MAX_CHUNK_BYTES = 1 << 20


def cut(blocks: KvBlocks, block_size: int, max_bytes: int = MAX_CHUNK_BYTES) -> Iterator[KvBlocks]:
    """Pieces of whole blocks, each of at most ``max_bytes`` or one block; ``block_size`` in tokens."""
    count = len(blocks.checksums)
    block_bytes = len(blocks.data) // count
    step = max(1, max_bytes // block_bytes)
    if count <= step:
        yield blocks
        return
    view = memoryview(blocks.data)
    for start in range(0, count, step):
        stop = min(start + step, count)
        yield KvBlocks(
            first_block=blocks.first_block + start,
            token_count=min(stop * block_size, blocks.token_count) - start * block_size,
            data=bytes(view[start * block_bytes : stop * block_bytes]),
            checksums=blocks.checksums[start:stop],
        )
