"""What the engine gives back."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill_engine.sampling import FinishReason


@dataclass(frozen=True, slots=True)
class Step:
    """Tokens of one sequence that were ready together.

    Attributes:
        token_ids: new tokens; may be empty in the last step. After a STOP the last may carry the first bytes of the stop
            string: the reader cuts its text there.
        finish: set in the last step.
        cached_tokens: prompt tokens that no worker had to compute; set in the first step.
    """

    token_ids: tuple[int, ...]
    finish: FinishReason | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """A sequence has its blocks and awaits KV from elsewhere.

    Attributes:
        prompt_ids: the whole prompt, the held prefix included.
        held_blocks: full blocks, counted from the first, that need not travel.
        cached_tokens: tokens in them.
    """

    prompt_ids: tuple[int, ...]
    held_blocks: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class KvBlocks:
    """KV of consecutive blocks, block after block.

    Attributes:
        first_block: index of the first block in the prompt.
        token_count: tokens in all of them; the prompt's last block may be part full.
        data: raw bytes, each block [layers, 2, block_size, kv_heads, head_dim] of the engine's dtype.
        checksums: xxh3-64 of each block's bytes.
    """

    first_block: int
    token_count: int
    data: bytes
    checksums: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FirstToken:
    """The token after a prompt.

    Attributes:
        token_id: its id.
        cached_tokens: prompt tokens that were found in this engine's cache.
    """

    token_id: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Computed:
    """Blocks of a prompt are computed and may be exported; inside the engine only.

    Attributes:
        first_block: index of the first one in the prompt.
        blocks: their places in the pool.
        token_count: tokens in all of them.
        last: whether the prompt ends with them.
    """

    first_block: int
    blocks: tuple[int, ...]
    token_count: int
    last: bool
