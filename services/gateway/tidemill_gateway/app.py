"""The HTTP application: what is not a route for a known caller is refused."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from tidemill_common import telemetry
from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway import auth
from tidemill_gateway.endpoints import Endpoints, error_response, known, unexpected, unknown
from tidemill_gateway.gateway import Gateway

log = logging.getLogger(__name__)


class Door:
    """Lets in callers with a key, by a name that is ours, from pages that may; before anything else is looked at."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self.app = app
        self.gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, then pass on with ``scope["tidemill.caller"]``."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            auth.check_host(headers.get("host"), self.gateway.hosts)
            self._check_origin(scope, headers)
            scope["tidemill.caller"] = self.gateway.authenticator.caller(headers.get("authorization"))
        except TidemillError as error:
            telemetry.ERRORS.labels("gateway", error.reason).inc()
            await self._refuse(error, scope, receive, send)
            return
        await self.app(scope, receive, send)

    @staticmethod
    def _check_origin(scope: Scope, headers: Mapping[str, str]) -> None:
        if scope["type"] == "websocket" and not auth.origin_allowed(headers.get("origin"), headers.get("host")):
            raise TidemillError(Reason.ORIGIN_REFUSED, f"a WebSocket from {headers['origin']!r} is not accepted")

    @staticmethod
    async def _refuse(error: TidemillError, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
        await error_response(error)(scope, receive, send)


def build(gateway: Gateway) -> Starlette:
    """The application."""
    endpoints = Endpoints(gateway)
    return Starlette(
        routes=[
            WebSocketRoute("/v1/responses", endpoints.connect),
            Route("/v1/responses", endpoints.upgrade_required, methods=["GET"]),
            Route("/v1/responses", endpoints.create, methods=["POST"]),
            Route("/v1/responses/{response_id}", endpoints.read, methods=["GET"]),
            Route("/v1/responses/{response_id}", endpoints.delete, methods=["DELETE"]),
            Route("/v1/models", endpoints.models, methods=["GET"]),
        ],
        middleware=[Middleware(Door, gateway=gateway)],
        exception_handlers={HTTPException: unknown, TidemillError: known, Exception: unexpected},
    )
