"""The block pool's memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tidemill_engine import kv_transfer
from tidemill_engine.kv_transfer import KvLayout

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class KvCache:
    """Keys and values of ``block_count`` blocks.

    Attributes:
        data: [block_count, layers, 2, block_size, kv_heads, head_dim] of the layout's dtype.
        keys: per layer, a view [block_count, block_size, kv_heads, head_dim].
        values: the same.
    """

    def __init__(self, layout: KvLayout, block_count: int) -> None:
        self.layout = layout
        shape = (block_count, layout.layers, 2, layout.block_size, layout.kv_heads, layout.head_dim)
        # Zeroed memory is taken from the system page by page, when first written.
        self.data = torch.zeros(shape, dtype=DTYPES[layout.dtype])
        self.keys = [self.data[:, layer, 0] for layer in range(layout.layers)]
        self.values = [self.data[:, layer, 1] for layer in range(layout.layers)]
        self._bytes = self.data.view(torch.uint8).numpy().reshape(block_count, layout.block_bytes)

    def export_blocks(self, blocks: Sequence[int], token_count: int) -> tuple[bytes, tuple[int, ...]]:
        """Bytes and checksums of ``blocks``, which hold ``token_count`` tokens; what lies beyond these is zeroed in the copy.

        Any thread may call this for blocks that are computed and held.
        """
        views = [self._bytes[block].data for block in blocks]
        fill = token_count % self.layout.block_size
        if fill:
            tail = self.data[blocks[-1]].clone()
            tail[:, :, fill:] = 0
            views[-1] = tail.view(torch.uint8).numpy().reshape(-1).data
        return b"".join(views), kv_transfer.checksums(views)

    def import_blocks(self, blocks: Sequence[int], data: Sequence[memoryview]) -> None:
        """Overwrite ``blocks`` with the bytes of one block each."""
        for block, source in zip(blocks, data, strict=True):
            self._bytes[block].data[:] = source
