"""The HTTP server: uvicorn as a part of this process, which has its own signals and its own log."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway.framing import GatewayWebSocket

PING_SECONDS: Final = 20.0
# A client that runs a tool may read nothing for a while; pings keep the way open, their answers are no hurry.
PONG_SECONDS: Final = 120.0
START_SECONDS: Final = 10.0


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stopping = asyncio.Event()

    async def main_loop(self) -> None:
        """Renew the Date header each second until asked to stop."""
        while not self.stopping.is_set():
            await self.on_tick(0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self.stopping.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The process's own handlers stay."""
        yield


class WebServer:
    """Serves an application.

    Attributes:
        url: where it is reached, after ``start``.
    """

    def __init__(self, app: ASGIApp, host: str, port: int, *, message_bytes: int, unread_seconds: float) -> None:
        self.url = ""
        self._host = host
        self._port = port
        self._unread_seconds = unread_seconds
        self._task: asyncio.Task[None] | None = None
        self._server = _Server(
            uvicorn.Config(
                app,
                http="httptools",
                ws=GatewayWebSocket,
                ws_max_size=message_bytes,
                ws_ping_interval=PING_SECONDS,
                ws_ping_timeout=PONG_SECONDS,
                ws_per_message_deflate=False,
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )

    async def start(self) -> None:
        """Listen. Raises TidemillError(CONFIG) when the address can't be had."""
        listener = self._listen()
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name="http server")
        async with asyncio.timeout(START_SECONDS):
            while not self._server.started:
                if self._task.done():
                    await self._task
                    raise TidemillError(Reason.INTERNAL, "the HTTP server ended at its start")
                await asyncio.sleep(0.005)

    def close(self) -> None:
        """Accept no further connection."""
        for server in getattr(self._server, "servers", []):
            server.close()

    async def stop(self) -> None:
        """End what is left of the connections and stop."""
        if self._task is not None:
            self._server.stopping.set()
            await self._task

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Accepted sockets inherit it: the kernel drops a client that leaves sent bytes unread for longer.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self._unread_seconds * 1000))
        try:
            listener.bind((self._host, self._port))
        except OSError as error:
            listener.close()
            raise TidemillError(
                Reason.CONFIG,
                f"can't listen on {self._host}:{self._port} ({error.strerror}); TIDEMILL_GATEWAY_HTTP_PORT sets another port",
            ) from error
        listener.setblocking(False)
        port = listener.getsockname()[1]
        host = "127.0.0.1" if self._host in ("0.0.0.0", "::", "") else self._host
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        return listener
