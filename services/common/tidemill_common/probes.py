"""The plain port: /livez, /readyz and /metrics, served from a thread of its own so that a busy event loop can't starve it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

STUCK_AFTER_SECONDS = 60.0


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


class Probes:
    """State of the process as its plain port tells it.

    Attributes:
        ready: whether /readyz answers 200.
        port: bound port, after ``start``.
    """

    def __init__(self, host: str, port: int) -> None:
        self.ready = False
        self._beat_at = time.monotonic()
        self._metrics = make_wsgi_app()
        self._server: WSGIServer = make_server(host, port, self._app, handler_class=_Quiet)
        self.port = self._server.server_port

    def start(self) -> None:
        """Serve from a daemon thread and watch the running event loop's beat."""
        threading.Thread(target=self._server.serve_forever, name="probes", daemon=True).start()
        self._beater = asyncio.get_running_loop().create_task(self._beat())

    def stop(self) -> None:
        """Stop serving and free the port."""
        self._beater.cancel()
        self._server.shutdown()
        self._server.server_close()

    async def _beat(self) -> None:
        while True:
            self._beat_at = time.monotonic()
            await asyncio.sleep(1)

    def _app(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO")
        if path == "/metrics":
            metrics: Iterable[bytes] = self._metrics(environ, start_response)
            return metrics
        checks = {"/livez": time.monotonic() - self._beat_at < STUCK_AFTER_SECONDS, "/readyz": self.ready}
        if path not in checks:
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"not found: this port has /livez, /readyz and /metrics\n"]
        start_response("200 OK" if checks[path] else "503 Service Unavailable", [("Content-Type", "text/plain")])
        return [b"ok\n" if checks[path] else b"not yet\n"]
