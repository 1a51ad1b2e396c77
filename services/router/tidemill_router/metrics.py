"""The router's metrics."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

WORKERS = Gauge("tidemill_router_workers", "Registered workers.", ["role"])
INDEXED_BLOCKS = Gauge("tidemill_router_indexed_blocks", "Blocks in the index, over all workers.")
ROUTES = Counter("tidemill_router_routes_total", "Turns routed, by why their decode worker was chosen.", ["reason"])
PREFILLS = Counter("tidemill_router_disaggregated_routes_total", "Turns routed to a prefill worker as well.")
PROMPT_TOKENS = Counter("tidemill_router_prompt_tokens_total", "Prompt tokens of the turns routed.")
HELD_TOKENS = Counter("tidemill_router_held_tokens_total", "Prompt tokens that the chosen decode worker held.")
SILENT = Counter("tidemill_router_silent_workers_total", "Workers dropped because they fell silent.")
EVENT_GAPS = Counter("tidemill_router_event_gaps_total", "Streams ended because block events were lost.")
