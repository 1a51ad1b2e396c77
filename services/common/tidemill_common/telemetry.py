"""Logs, metrics and hops. Durations come from this process's monotonic clock and carry its node type."""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import dataclass

from prometheus_client import Counter, Histogram

from tidemill.common.v1 import common_pb2
from tidemill_common import cpu

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)

RPC_SECONDS = Histogram(
    "tidemill_rpc_duration_seconds",
    "Duration of an RPC on its server.",
    ["service", "method", "node_type"],
    buckets=_BUCKETS,
)
TTFT_SECONDS = Histogram(
    "tidemill_time_to_first_token_seconds",
    "From request read to first generated token written.",
    ["service", "node_type"],
    buckets=_BUCKETS,
)
ERRORS = Counter("tidemill_errors_total", "Failures by catalogue reason.", ["service", "reason"])


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this process is, as hops and metrics name it."""

    service: str
    node: str

    def hop(self, started: float) -> common_pb2.Hop:
        """A hop that began at ``started``, a ``time.monotonic()`` value."""
        return common_pb2.Hop(
            service=self.service,
            node=self.node,
            node_type=cpu.node_type(),
            milliseconds=(time.monotonic() - started) * 1000,
            pid=os.getpid(),
        )


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self.service = service

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, service, logger, message, then what `extra={"fields": {...}}` gave, and the trace if there is one."""
        fields = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "service": self.service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= getattr(record, "fields", {})
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def configure_logging(service: str, level: str) -> None:
    """Send every log record to stderr as JSON lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(service))
    logging.basicConfig(level=level, handlers=[handler], force=True)
