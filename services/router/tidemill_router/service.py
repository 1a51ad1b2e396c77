"""The router as a process sees it."""

from __future__ import annotations

import asyncio
import contextlib

import grpc.aio

from tidemill.router.v1 import router_service_pb2 as pb
from tidemill.router.v1 import router_service_pb2_grpc as pb_grpc
from tidemill_common.telemetry import Identity
from tidemill_router.config import Settings
from tidemill_router.routing import Router
from tidemill_router.servicer import RouterServicer


class RouterProcess:
    """The router's part in tidemill_common.server."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        router = Router(settings.limits(), settings.weights())
        self.servicer = RouterServicer(router, Identity("router", settings.node))
        self._watch: asyncio.Task[None] | None = None

    def attach(self, server: grpc.aio.Server) -> list[str]:
        """Add the servicer; return its full name."""
        pb_grpc.add_RouterServiceServicer_to_server(self.servicer, server)
        return [pb.DESCRIPTOR.services_by_name["RouterService"].full_name]

    async def start(self, address: str) -> dict[str, object]:
        """Watch for silent workers from now on."""
        self._watch = asyncio.create_task(self.servicer.watch(self.settings.silent_seconds / 10))
        return {}

    async def drain(self) -> None:
        """End the workers' streams, which would last as long as the workers."""
        self.servicer.close()

    async def stop(self) -> None:
        """Stop the watch."""
        if self._watch:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
