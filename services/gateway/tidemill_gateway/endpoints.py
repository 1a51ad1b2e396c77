"""HTTP endpoints."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import Final, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.websockets import WebSocket

from tidemill_common import telemetry
from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway import wire
from tidemill_gateway.auth import Caller
from tidemill_gateway.catalogue import models_body
from tidemill_gateway.connection import Connection
from tidemill_gateway.events import error_body
from tidemill_gateway.gateway import Gateway
from tidemill_gateway.outlet import nowhere
from tidemill_gateway.sse import EventStream
from tidemill_gateway.turn import Turn

log = logging.getLogger(__name__)

HOPS_HEADER: Final = "x-tidemill-hops"
RETRY_AFTER_SECONDS: Final = 1
DISCARDED_BODIES: Final = 4  # times the limit that is read of a body before the connection is given up

T = TypeVar("T")


def error_response(error: TidemillError) -> JSONResponse:
    """The HTTP answer that an error is."""
    headers = {}
    if error.reason is Reason.OVERLOADED:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    if error.reason is Reason.REQUEST_TOO_LARGE:
        headers["Connection"] = "close"  # the rest of the body is not read
    if error.reason is Reason.INVALID_API_KEY:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error_body(error), status_code=error.entry.http, headers=headers)


class Endpoints:
    """Handlers of the routes."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    async def connect(self, socket: WebSocket) -> None:
        """``GET /v1/responses`` with an upgrade: one WebSocket for many turns."""
        if self.gateway.draining.is_set() or self.gateway.limits.connections_full:
            error = TidemillError(Reason.UNAVAILABLE, "the gateway takes no further connection now")
            await socket.send_denial_response(error_response(error))
            return
        with self.gateway.limits.connection():
            limit = str(self.gateway.bounds.message_bytes).encode()
            await socket.accept(headers=[(b"x-codex-websocket-max-message-bytes", limit)])
            await Connection(self.gateway, socket, _caller(socket), hops=_wants_hops(socket)).serve()

    async def upgrade_required(self, request: Request) -> Response:
        """``GET /v1/responses`` without an upgrade."""
        error = TidemillError(Reason.INVALID_REQUEST, "GET /v1/responses opens a WebSocket; POST takes a single request")
        return JSONResponse(error_body(error), status_code=426, headers={"Upgrade": "websocket", "Connection": "Upgrade"})

    async def create(self, request: Request) -> Response:
        """``POST /v1/responses``: events when ``stream`` is true, else the response object."""
        raw = wire.read_object(await self._body(request))
        caller, hops = _caller(request), _wants_hops(request)
        if self.gateway.draining.is_set():
            raise TidemillError(Reason.UNAVAILABLE, "the gateway is about to stop")
        received = time.monotonic()
        if raw.get("stream") is True:
            return EventStream(self.gateway, raw, caller, received, hops=hops, refuse=error_response)
        with self.gateway.limits.turn():
            turn = await self.gateway.prepare(raw, caller, received)
            await _while_connected(request, turn.run(nowhere))
        return self._result(turn)

    async def read(self, request: Request) -> Response:
        """``GET /v1/responses/{id}``."""
        found = await self.gateway.responses.read(_caller(request).tenant, request.path_params["response_id"])
        return JSONResponse(found)

    async def delete(self, request: Request) -> Response:
        """``DELETE /v1/responses/{id}``."""
        response_id = request.path_params["response_id"]
        await self.gateway.responses.delete(_caller(request).tenant, response_id)
        return JSONResponse({"id": response_id, "object": "response", "deleted": True})

    async def models(self, request: Request) -> Response:
        """``GET /v1/models``."""
        return JSONResponse(models_body(self.gateway.cards))

    @staticmethod
    def _result(turn: Turn) -> Response:
        if turn.error is not None:
            raise turn.error
        return JSONResponse(turn.events.response)

    async def _body(self, request: Request) -> bytes:
        """The request's body, as large as is allowed and read in bounded time.

        One that is somewhat larger is read and thrown away, since an answer to a client that still sends can get lost with the
        connection.
        """
        limit = self.gateway.bounds.message_bytes
        too_large = TidemillError(Reason.REQUEST_TOO_LARGE, f"the body has more than {limit} bytes")
        if encoding := request.headers.get("content-encoding", ""):
            raise TidemillError(Reason.INVALID_REQUEST, f"Content-Encoding {encoding!r} is not read; send plain JSON")
        if int(request.headers.get("content-length", "0")) > DISCARDED_BODIES * limit:
            raise too_large
        body, size = bytearray(), 0
        try:
            async with asyncio.timeout(self.gateway.bounds.body_seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size <= limit:
                        body += chunk
                    elif size > DISCARDED_BODIES * limit:
                        raise too_large
        except TimeoutError as error:
            raise TidemillError(Reason.INVALID_REQUEST, "the body did not arrive in time") from error
        except ClientDisconnect as error:
            raise TidemillError(Reason.CANCELLED, "the client went away") from error
        if size > limit:
            raise too_large
        return bytes(body)


async def unknown(request: Request, error: Exception) -> Response:
    """Any path or method that is not served."""
    return error_response(TidemillError(Reason.NOT_FOUND, f"{request.method} {request.url.path} is not served"))


async def known(request: Request, error: Exception) -> Response:
    """A catalogue error."""
    if not isinstance(error, TidemillError):
        raise error
    telemetry.ERRORS.labels("gateway", error.reason).inc()
    return error_response(error)


async def unexpected(request: Request, error: Exception) -> Response:
    """A bug; the log has the trace."""
    return error_response(TidemillError(Reason.INTERNAL, type(error).__name__))


async def _while_connected(request: Request, work: Awaitable[T]) -> T:
    """The result of ``work``, which ends when the client goes away. Raises TidemillError(CANCELLED) then."""
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TidemillError(Reason.CANCELLED, "the client went away")
        return task.result()
    finally:
        for each in (task, watcher):
            each.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _caller(connection: Request | WebSocket) -> Caller:
    caller: Caller = connection.scope["tidemill.caller"]
    return caller


def _wants_hops(connection: Request | WebSocket) -> bool:
    return connection.headers.get(HOPS_HEADER, "").strip() == "1"
