"""SafetyService over gRPC: maps messages to the policy."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc.aio
from prometheus_client import Counter

from tidemill.safety.v1 import safety_service_pb2 as pb
from tidemill.safety.v1 import safety_service_pb2_grpc as pb_grpc
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.telemetry import Identity
from tidemill_safety.policy import Policy, Verdict
from tidemill_safety.rules import Direction

INLINE_CHARS = 4096
VERDICTS = Counter("tidemill_safety_verdicts_total", "Verdicts by direction and refusing rule.", ["direction", "rule"])

_DIRECTIONS = {
    pb.DIRECTION_INPUT: Direction.INPUT,
    pb.DIRECTION_OUTPUT: Direction.OUTPUT,
    pb.DIRECTION_TOOL_ARGUMENTS: Direction.TOOL_ARGUMENTS,
}


class SafetyServicer(pb_grpc.SafetyServiceServicer):
    """Judges short texts on the event loop and long ones in a pool of threads with a bounded queue."""

    def __init__(self, policy: Policy, identity: Identity, threads: int = 1, max_waiting: int = 64) -> None:
        self._policy = policy
        self._identity = identity
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="check")
        self._slots = threading.Semaphore(threads + max_waiting)

    async def Check(  # noqa: N802 - gRPC's name
        self, request: pb.CheckRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.CheckResponse:
        """The verdict on ``request.text``. Raises INVALID_REQUEST without a known direction, OVERLOADED beyond the queue."""
        started = time.monotonic()
        direction = _DIRECTIONS.get(request.direction)
        if direction is None:
            raise TidemillError(Reason.INVALID_REQUEST, f"direction {request.direction} tells no author", "direction")
        verdict = await self._judge(request.context, request.text, direction)
        VERDICTS.labels(direction, verdict.rule or "allowed").inc()
        return pb.CheckResponse(
            allowed=verdict.allowed, rule=verdict.rule, score=verdict.score, hop=self._identity.hop(started)
        )

    async def _judge(self, context: str, text: str, direction: Direction) -> Verdict:
        if len(context) + len(text) <= INLINE_CHARS:
            return self._policy.check(context, text, direction)
        if not self._slots.acquire(blocking=False):
            raise TidemillError(Reason.OVERLOADED, "too many long texts wait for a verdict")
        future = self._pool.submit(self._policy.check, context, text, direction)
        future.add_done_callback(lambda _: self._slots.release())
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Drop texts that wait and end the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
