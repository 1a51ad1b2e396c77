"""A worker as tidemill_common.server runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import grpc.aio

from tidemill_engine.worker.worker import Worker


class WorkerProcess:
    """A worker with its servicer.

    ``add`` adds the servicer to a server and returns its full proto name; ``close`` frees what the servicer holds.
    """

    def __init__(self, worker: Worker, add: Callable[[grpc.aio.Server], str], close: Callable[[], Awaitable[None]]) -> None:
        self.worker = worker
        self._add = add
        self._close = close

    def attach(self, server: grpc.aio.Server) -> list[str]:
        """Add the servicer; return its full name."""
        return [self._add(server)]

    async def start(self, address: str) -> dict[str, object]:
        """Load, register, become ready."""
        return await self.worker.start(address)

    async def drain(self) -> None:
        """Take no new work."""
        await self.worker.drain()

    async def stop(self) -> None:
        """Free everything."""
        await self._close()
        await self.worker.stop()
