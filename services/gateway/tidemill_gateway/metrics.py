"""Metrics of the gateway beyond those that every service has."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

TURNS = Counter("tidemill_gateway_turns_total", "Turns by how they ended.", ["outcome"])
PREFIX_BREAKS = Counter(
    "tidemill_gateway_prefix_breaks_total",
    "Turns that followed a response but were rendered whole, by reason.",
    ["reason"],
)
TOKENS = Counter("tidemill_gateway_tokens_total", "Tokens of turns: prompt, cached (part of prompt) and output.", ["kind"])
REROUTED = Counter("tidemill_gateway_rerouted_total", "Turns moved to another worker, by when.", ["when"])
VERDICTS = Counter("tidemill_gateway_verdicts_total", "Safety verdicts, by direction and outcome.", ["direction", "outcome"])
RESENT = Counter(
    "tidemill_gateway_resent_turns_total", "Model turns resent as text, by whether their ids were known.", ["known"]
)
PREFILLS_SKIPPED = Counter("tidemill_gateway_background_prefills_skipped_total", "Prompts not computed ahead for want of room.")
CONNECTIONS = Gauge("tidemill_gateway_connections", "Open WebSocket connections.")
RUNNING = Gauge("tidemill_gateway_running_turns", "Turns that run now.")
