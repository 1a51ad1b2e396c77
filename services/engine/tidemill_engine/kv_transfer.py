"""KV blocks on their way between engines: layout, size, checksums.

The layout is block-major: a block is [layers, 2, block_size, kv_heads, head_dim], contiguous, so one block is one copy. Engines
exchange blocks only when their fingerprints are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import xxhash

from tidemill_common.errors import Reason, TidemillError

DTYPE_BYTES = {"float32": 4, "bfloat16": 2}
LAYOUT_VERSION = 1  # raise it when the order of a block's bytes changes


@dataclass(frozen=True, slots=True)
class KvLayout:
    """Shape and type of a KV block.

    Attributes:
        layers: number of layers.
        block_size: tokens per block.
        kv_heads: key and value heads.
        head_dim: size of a head.
        dtype: a key of DTYPE_BYTES.
    """

    layers: int
    block_size: int
    kv_heads: int
    head_dim: int
    dtype: str

    @property
    def block_bytes(self) -> int:
        """Bytes of one block."""
        return self.layers * 2 * self.block_size * self.kv_heads * self.head_dim * DTYPE_BYTES[self.dtype]

    def fingerprint(self, model_fingerprint: str) -> str:
        """Name of model and layout together."""
        shape = f"{self.layers}x2x{self.block_size}x{self.kv_heads}x{self.head_dim}"
        return f"{model_fingerprint}/{self.dtype}/v{LAYOUT_VERSION}-{shape}"


def checksums(blocks: Iterable[memoryview]) -> tuple[int, ...]:
    """xxh3-64 of each block."""
    return tuple(xxhash.xxh3_64_intdigest(block) for block in blocks)


def split(data: bytes, token_count: int, layout: KvLayout) -> list[memoryview]:
    """The blocks of ``data``. Raises TidemillError(KV_CORRUPT) unless it has as many whole blocks as the tokens need."""
    count, size = -(-token_count // layout.block_size), layout.block_bytes
    if token_count < 1 or len(data) != count * size:
        raise TidemillError(Reason.KV_CORRUPT, f"{token_count} tokens of KV need {count * size} bytes, got {len(data)}")
    view = memoryview(data)
    return [view[start : start + size] for start in range(0, len(data), size)]


def verify(data: bytes, token_count: int, expected: Sequence[int], layout: KvLayout) -> None:
    """Raise TidemillError(KV_CORRUPT) unless ``data`` has the size and the checksums that were announced."""
    found = checksums(split(data, token_count, layout))
    wrong = [index for index, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]]
    if wrong or len(found) != len(expected):
        raise TidemillError(
            Reason.KV_CORRUPT, f"blocks {wrong} of {len(found)} ({len(expected)} checksums) do not match their checksums"
        )
