"""A response as server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope
from starlette.types import Send as AsgiSend

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway import wire
from tidemill_gateway.auth import Caller
from tidemill_gateway.events import Event
from tidemill_gateway.gateway import Gateway
from tidemill_gateway.outlet import ClientGoneError

log = logging.getLogger(__name__)


class EventStream(Response):
    """Serves one request as events.

    What the client must change is an HTTP status, given before the stream begins. Overload is ``response.failed`` in a stream,
    since clients that stream give up at status 429.
    """

    def __init__(
        self,
        gateway: Gateway,
        raw: Mapping[str, Any],
        caller: Caller,
        received: float,
        *,
        hops: bool,
        refuse: Callable[[TidemillError], Response],
    ) -> None:
        self.gateway = gateway
        self.raw = raw
        self.caller = caller
        self.received = received
        self.hops = hops
        self.refuse = refuse
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: AsgiSend) -> None:
        """Serve; a client that goes away ends the turn."""
        worker = asyncio.create_task(self._serve(scope, receive, send), name="sse worker")
        watcher = asyncio.create_task(_disconnected(receive), name="sse watcher")
        try:
            await asyncio.wait({worker, watcher}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            worker.cancel()
            watcher.cancel()
            await asyncio.gather(worker, watcher, return_exceptions=True)
        if not worker.cancelled():
            worker.result()

    async def _serve(self, scope: Scope, receive: Receive, send: AsgiSend) -> None:
        stream = _Stream(send, self.gateway.bounds.send_seconds)
        try:
            with self.gateway.limits.turn():
                turn = await self.gateway.prepare(self.raw, self.caller, self.received)
                await stream.start()
                await turn.run(stream.write, hops=self.hops)
        except ClientGoneError:
            return
        except TidemillError as error:
            if error.reason is not Reason.OVERLOADED:
                await self.refuse(error)(scope, receive, send)
                return
            await stream.start()
            await stream.write(self.gateway.refused(self.raw, error))
        await stream.end()


class _Stream:
    def __init__(self, send: AsgiSend, send_seconds: float) -> None:
        self._send = send
        self._send_seconds = send_seconds

    async def start(self) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def write(self, event: Event) -> None:
        """Write one event. Raises ClientGoneError for a client that leaves a full buffer unread for too long."""
        body = f"event: {event['type']}\ndata: {wire.write(event)}\n\n".encode()
        try:
            async with asyncio.timeout(self._send_seconds):
                await self._send({"type": "http.response.body", "body": body, "more_body": True})
        except TimeoutError:
            log.warning("closed a stream that was not read for %g s", self._send_seconds)
            raise ClientGoneError from None

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
