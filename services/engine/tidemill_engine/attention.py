"""Attention over the block pool, registered with transformers so that its own model code runs on it.

A step packs the new tokens of all sequences into one row [1, T]. Every layer calls ``paged_attention``, which writes the new
keys and values into the pool and attends sequence by sequence over the blocks of each. The batch travels through the model's
forward as the keyword ``paged``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

from tidemill_engine.kv_cache import KvCache

NAME = "tidemill_paged"


@dataclass(frozen=True, slots=True)
class Span:
    """New tokens of one sequence within the packed row.

    Attributes:
        start: first row.
        count: rows.
        past: tokens of the sequence whose KV is in the pool already.
        blocks: int64 [number of blocks], the block table up to the span's last token.
        mask: [count, past + count] additive, of the model's dtype; None when plain causal or a single row.
    """

    start: int
    count: int
    past: int
    blocks: torch.Tensor
    mask: torch.Tensor | None

    @classmethod
    def make(cls, start: int, count: int, past: int, blocks: Sequence[int], dtype: torch.dtype) -> Span:
        """A span with the mask it needs."""
        mask = None
        if past and count > 1:
            hidden = torch.ones(count, past + count, dtype=torch.bool).triu(past + 1)
            mask = torch.zeros(count, past + count, dtype=dtype).masked_fill(hidden, -torch.inf)
        return cls(start, count, past, torch.tensor(blocks, dtype=torch.int64), mask)


@dataclass(frozen=True, slots=True)
class PagedBatch:
    """What every layer of one step shares.

    Attributes:
        cache: the pool's memory.
        spans: one per sequence, in the order of their rows.
        slot_blocks: int64 [T], the block that each row's KV goes to.
        slot_offsets: int64 [T], its place in that block.
    """

    cache: KvCache
    spans: Sequence[Span]
    slot_blocks: torch.Tensor
    slot_offsets: torch.Tensor


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    paged: PagedBatch,
    scaling: float,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of one layer: query [1, heads, T, head_dim], key and value [1, kv_heads, T, head_dim] to [1, T, heads,
    head_dim].

    ``attention_mask`` is not used: each span knows what it may see.
    """
    layer: int = module.layer_idx  # type: ignore[assignment]  # every attention module of these models has it
    keys, values = paged.cache.keys[layer], paged.cache.values[layer]
    keys[paged.slot_blocks, paged.slot_offsets] = key[0].transpose(0, 1)
    values[paged.slot_blocks, paged.slot_offsets] = value[0].transpose(0, 1)
    outputs = [_attend(span, query, key, value, keys, values, scaling) for span in paged.spans]
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)
    return output.transpose(1, 2), None


def _attend(
    span: Span,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scaling: float,
) -> torch.Tensor:
    rows = slice(span.start, span.start + span.count)
    query = query[:, :, rows]
    if span.past:
        key, value = _gather(keys, span), _gather(values, span)
    else:
        key, value = key[:, :, rows], value[:, :, rows]
    causal = span.mask is None and span.count > 1
    return scaled_dot_product_attention(
        query, key, value, attn_mask=span.mask, is_causal=causal, scale=scaling, enable_gqa=True
    )


def _gather(pool: torch.Tensor, span: Span) -> torch.Tensor:
    """[1, kv_heads, past + count, head_dim] of a span's sequence."""
    rows = pool.index_select(0, span.blocks).flatten(0, 1)[: span.past + span.count]
    return rows.transpose(0, 1)[None]


def _no_mask(*_: Any, **__: Any) -> None:
    return None


AttentionInterface.register(NAME, paged_attention)
AttentionMaskInterface.register(NAME, _no_mask)
