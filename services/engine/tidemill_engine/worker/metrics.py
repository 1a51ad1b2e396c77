"""Metrics of both workers."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Counter, Gauge

from tidemill_engine.stats import EngineStats

RUNNING = Gauge("tidemill_worker_running_sequences", "Sequences that hold blocks.", ["service"])
WAITING = Gauge("tidemill_worker_waiting_sequences", "Sequences that wait for admission.", ["service"])
PENDING = Gauge("tidemill_worker_pending_prefill_tokens", "Prompt tokens not yet computed.", ["service"])
USED = Gauge("tidemill_worker_used_blocks", "KV blocks that sequences hold.", ["service"])
FREE = Gauge("tidemill_worker_free_blocks", "KV blocks that no sequence needs, cached ones among them.", ["service"])
PROMPT_TOKENS = Counter("tidemill_worker_prompt_tokens_total", "Prompt tokens of the turns served.", ["service"])
CACHED_TOKENS = Counter("tidemill_worker_cached_tokens_total", "Prompt tokens that nobody had to compute.", ["service"])
GENERATED_TOKENS = Counter("tidemill_worker_generated_tokens_total", "Tokens generated.", ["service"])
TRANSFERRED_TOKENS = Counter("tidemill_worker_transferred_tokens_total", "Prompt tokens whose KV travelled.", ["service"])
ROUTERS = Gauge("tidemill_worker_registered_routers", "Routers that this worker is registered with.", ["service"])


def watch(service: str, stats: Callable[[], EngineStats]) -> None:
    """Read the gauges from ``stats`` whenever metrics are collected."""
    readers: list[tuple[Gauge, Callable[[EngineStats], int]]] = [
        (RUNNING, lambda now: now.running),
        (WAITING, lambda now: now.waiting),
        (PENDING, lambda now: now.pending_prefill_tokens),
        (USED, lambda now: now.used_blocks),
        (FREE, lambda now: now.free_blocks),
    ]
    for gauge, read in readers:
        gauge.labels(service).set_function(lambda read=read: read(stats()))  # type: ignore[misc]
