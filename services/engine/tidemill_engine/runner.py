"""The model: packed chunks in, logits out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from tidemill_common.errors import Reason, TidemillError
from tidemill_engine import attention
from tidemill_engine.attention import PagedBatch, Span
from tidemill_engine.kv_cache import DTYPES, KvCache
from tidemill_engine.kv_transfer import KvLayout

SUPPORTED = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True)
class ModelChunk:
    """Consecutive tokens of one sequence to compute.

    Attributes:
        token_ids: the tokens.
        start: position of the first.
        blocks: block table, up to the last token at least.
        wants_logits: whether the logits after the last token are needed.
    """

    token_ids: Sequence[int]
    start: int
    blocks: Sequence[int]
    wants_logits: bool


class Runner(Protocol):
    """What the engine needs of a model."""

    cache: KvCache
    vocabulary_size: int

    def forward(self, chunks: Sequence[ModelChunk]) -> torch.Tensor:
        """Compute the chunks and write their KV. Returns float logits [chunks that want them, vocabulary]."""


class TransformersRunner:
    """Transformers' own model code over the block pool."""

    def __init__(self, model: Any, cache: KvCache) -> None:
        self.cache = cache
        self._model = model
        self._head = model.get_output_embeddings()
        self.vocabulary_size: int = self._head.weight.shape[0]

    @torch.inference_mode()
    def forward(self, chunks: Sequence[ModelChunk]) -> torch.Tensor:
        """Compute the chunks and write their KV. Returns float logits [chunks that want them, vocabulary]."""
        ids = torch.tensor([[token for chunk in chunks for token in chunk.token_ids]])
        places = [torch.arange(chunk.start, chunk.start + len(chunk.token_ids)) for chunk in chunks]
        hidden = self._model.base_model(
            input_ids=ids, position_ids=torch.cat(places)[None], use_cache=False, paged=self._batch(chunks, places)
        ).last_hidden_state[0]
        ends = torch.tensor([len(chunk.token_ids) for chunk in chunks]).cumsum(0) - 1
        wanted = torch.tensor([chunk.wants_logits for chunk in chunks])
        logits: torch.Tensor = self._head(hidden[ends[wanted]])
        return logits.float()

    def _batch(self, chunks: Sequence[ModelChunk], places: Sequence[torch.Tensor]) -> PagedBatch:
        size, dtype = self.cache.layout.block_size, self.cache.data.dtype
        spans: list[Span] = []
        row = 0
        for chunk in chunks:
            count = len(chunk.token_ids)
            used = chunk.blocks[: -(-(chunk.start + count) // size)]
            spans.append(Span.make(row, count, chunk.start, used, dtype))
            row += count
        slots = [span.blocks[place // size] for span, place in zip(spans, places, strict=True)]
        return PagedBatch(self.cache, spans, torch.cat(slots), torch.cat(list(places)) % size)


def read_config(model_dir: Path) -> dict[str, Any]:
    """config.json of a supported model. Raises TidemillError(CONFIG) otherwise."""
    path = model_dir / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TidemillError(Reason.CONFIG, f"{str(path)!r} can't be read: {error}") from error
    if config.get("model_type") not in SUPPORTED:
        raise TidemillError(Reason.CONFIG, f"model type {config.get('model_type')!r} is not supported; {SUPPORTED} are")
    if config.get("use_sliding_window") or "sliding_attention" in (config.get("layer_types") or ()):
        raise TidemillError(Reason.CONFIG, f"{str(path)!r} asks for sliding-window attention, which is not supported")
    return config


def kv_layout(config: dict[str, Any], block_size: int, dtype: str) -> KvLayout:
    """Layout of the KV blocks of a model."""
    heads = int(config["num_attention_heads"])
    return KvLayout(
        layers=int(config["num_hidden_layers"]),
        block_size=block_size,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
        dtype=dtype,
    )


def load_runner(model_dir: Path, config: dict[str, Any], *, kv_bytes: int, block_size: int, dtype: str) -> TransformersRunner:
    """Load weights and make the pool's memory; blocks for seconds. Raises TidemillError(CONFIG)."""
    if dtype not in DTYPES:
        raise TidemillError(Reason.CONFIG, f"dtype {dtype!r} is not supported; {sorted(DTYPES)} are")
    layout = kv_layout(config, block_size, dtype)
    if kv_bytes < layout.block_bytes:
        raise TidemillError(Reason.CONFIG, f"kv_bytes {kv_bytes} holds no block of {layout.block_bytes} bytes")
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model = AutoModelForCausalLM.from_pretrained(
            model_dir, dtype=DTYPES[dtype], attn_implementation=attention.NAME, local_files_only=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise TidemillError(Reason.CONFIG, f"model in {str(model_dir)!r} can't be loaded: {error}") from error
    model.eval()  # type: ignore[no-untyped-call]
    return TransformersRunner(model, KvCache(layout, kv_bytes // layout.block_bytes))
