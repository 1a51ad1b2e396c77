"""What an engine is told at load."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill_common.digests import DEFAULT_BLOCK_SIZE


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Sizes and limits of one engine.

    Attributes:
        kv_bytes: memory of the block pool, bytes; rounded down to whole blocks.
        block_size: tokens per KV block.
        dtype: of weights and KV, "float32" or "bfloat16".
        threads: torch's intra-op threads; 0 leaves torch's own choice.
        max_running: sequences that hold blocks at once.
        prefill_chunk: tokens that one step computes at most, decoding ones included.
        max_waiting: sequences that wait for admission; one more is refused as OVERLOADED.
        context_length: tokens per sequence; 0 takes the model's own. More than the model's own is allowed (cost real, text
            meaningless).
    """

    kv_bytes: int = 512 << 20
    block_size: int = DEFAULT_BLOCK_SIZE
    dtype: str = "float32"
    threads: int = 0
    max_running: int = 16
    prefill_chunk: int = 256
    max_waiting: int = 64
    context_length: int = 0
