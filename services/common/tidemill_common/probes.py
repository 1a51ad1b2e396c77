"""The plain port: /livez, /readyz and /metrics, served from a thread of its own so that a busy event loop can't starve it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

from tidemill_common.errors import Reason, TidemillError

log = logging.getLogger(__name__)

STUCK_AFTER_SECONDS = 60.0
CLIENT_SECONDS = 5.0


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_SECONDS

    def log_message(self, format: str, *args: object) -> None:
        log.debug(format, *args)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        log.debug("a client of the plain port went away", exc_info=True)


class Probes:
    """State of the process as its plain port tells it.

    Attributes:
        ready: whether /readyz answers 200.
        port: bound port, after ``start``.
    """

    def __init__(self, host: str, port: int) -> None:
        """Bind the port. Raises TidemillError(CONFIG) when it is taken."""
        self.ready = False
        self._beat_at = time.monotonic()
        self._metrics = make_wsgi_app()
        try:
            self._server: WSGIServer = make_server(host, port, self._app, server_class=_Server, handler_class=_Handler)
        except OSError as error:
            raise TidemillError(Reason.CONFIG, f"the plain port can't listen on {host}:{port}: {error.strerror}") from error
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
