"""The decode worker's own metrics; those of every worker are in tidemill_engine.worker.metrics."""

from __future__ import annotations

from prometheus_client import Counter

PULLS = Counter("tidemill_decode_prefill_pulls_total", "Prompts whose KV was asked of a prefill worker.")
FALLBACKS = Counter(
    "tidemill_decode_prefill_fallbacks_total", "Prompts computed here though a prefill worker was named.", ["reason"]
)
