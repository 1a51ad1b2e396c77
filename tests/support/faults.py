"""Prefill servicers that fail on purpose."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from tidemill.prefill.v1 import prefill_service_pb2 as pb
from tidemill.prefill.v1 import prefill_service_pb2_grpc as pb_grpc
from tidemill_prefill.servicer import PrefillServicer


class FaultyPrefill(pb_grpc.PrefillServiceServicer):
    """A real prefill servicer whose messages pass through ``change``.

    Attributes:
        seen: kinds of the messages sent so far.
        remaining: seconds that the last call's deadline left at its start.
    """

    def __init__(self, inner: PrefillServicer) -> None:
        self.inner = inner
        self.seen: list[str] = []
        self.remaining: float | None = None
        self.change: Callable[[pb.PrefillResponse], pb.PrefillResponse] = lambda response: response
        self.hold_after: Callable[[list[str]], bool] = lambda seen: False
        self.held = asyncio.Event()

    async def Prefill(self, request: pb.PrefillRequest, context: Any) -> AsyncIterator[pb.PrefillResponse]:  # noqa: N802
        """Messages of the real worker, changed; the stream is held for ever once ``hold_after`` says so of the kinds sent."""
        self.remaining = context.time_remaining()
        async with contextlib.aclosing(self.inner.Prefill(request, context)) as responses:  # type: ignore[type-var]
            async for response in responses:
                yield self.change(response)
                self.seen.append(str(response.WhichOneof("kind")))
                if self.hold_after(self.seen):
                    self.held.set()
                    await asyncio.Event().wait()

    async def GetWorker(self, request: pb.GetWorkerRequest, context: Any) -> pb.GetWorkerResponse:  # noqa: N802
        """The real worker's answer."""
        return await self.inner.GetWorker(request, context)
