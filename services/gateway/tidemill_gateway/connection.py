"""One WebSocket: ``response.create`` messages served one after the other, in the order in which they come."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any, Final

from starlette.websockets import WebSocket, WebSocketDisconnect

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway import wire
from tidemill_gateway.auth import Caller
from tidemill_gateway.conversation import Node
from tidemill_gateway.events import Event
from tidemill_gateway.gateway import Gateway
from tidemill_gateway.outlet import ClientGoneError

log = logging.getLogger(__name__)

GOING_AWAY: Final = 1001


class Connection:
    """One client's WebSocket. ``hops`` says whether each turn ends with who served it."""

    def __init__(self, gateway: Gateway, socket: WebSocket, caller: Caller, *, hops: bool) -> None:
        self.gateway = gateway
        self.socket = socket
        self.caller = caller
        self.hops = hops
        self._last: Node | None = None
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue(gateway.bounds.pending_messages)
        self._ends_at = time.monotonic() + gateway.bounds.connection_seconds

    async def serve(self) -> None:
        """Serve until either end closes. A client that goes away ends what runs for it."""
        reader = asyncio.create_task(self._read(), name="websocket reader")
        worker = asyncio.create_task(self._work(), name="websocket worker")
        try:
            done, _ = await asyncio.wait({reader, worker}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reader.cancel()
            worker.cancel()
            await asyncio.gather(reader, worker, return_exceptions=True)
        for task in done:
            task.result()

    async def _read(self) -> None:
        """Queue what comes. Reading goes on during a turn, since a closed connection shows only there."""
        while True:
            message = await self.socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            await self._messages.put(dict(message))

    async def _work(self) -> None:
        with contextlib.suppress(ClientGoneError):
            while (message := await self._next()) is not None:
                await self._handle(message)
            await self._say_goodbye()

    async def _next(self) -> dict[str, Any] | None:
        """The next message; None when the connection is to end before it."""
        if self._ending():
            return None
        getter = asyncio.ensure_future(self._messages.get())
        drained = asyncio.ensure_future(self.gateway.draining.wait())
        try:
            await asyncio.wait({getter, drained}, timeout=self._ends_at - time.monotonic(), return_when=asyncio.FIRST_COMPLETED)
            return getter.result() if getter.done() else None
        finally:
            getter.cancel()
            drained.cancel()

    def _ending(self) -> bool:
        return self.gateway.draining.is_set() or time.monotonic() >= self._ends_at

    async def _handle(self, message: dict[str, Any]) -> None:
        try:
            text = message.get("text")
            if text is None:
                raise TidemillError(Reason.INVALID_REQUEST, "a binary frame was sent; events are JSON in text frames")
            frame = wire.read_object(text)
            if not isinstance(frame.get("type"), str):
                raise TidemillError(Reason.INVALID_REQUEST, "a message must say its type, such as response.create", "type")
            self.gateway.authenticator.check_still_known(self.caller)
        except TidemillError as error:
            await self._send(wire.error_frame(error))
            return
        if frame["type"] != "response.create":
            log.info("ignored a message of type %r", frame["type"][:80])
            return
        self._last = await self.gateway.stream(frame, self.caller, self._send, hops=self.hops, last=self._last) or self._last

    async def _say_goodbye(self) -> None:
        """Ask the client to connect anew; it takes that for no failure."""
        why = "the server is about to stop" if self.gateway.draining.is_set() else "it has reached its age limit"
        error = TidemillError(
            Reason.CONNECTION_LIMIT, f"This connection ends because {why}. Create a new websocket connection to continue."
        )
        await self._send(wire.error_frame(error))
        await self._close(GOING_AWAY, "going away")

    async def _send(self, event: Event) -> None:
        """Write one event. Raises ClientGoneError, also for a client that leaves a full buffer unread for too long."""
        try:
            async with asyncio.timeout(self.gateway.bounds.send_seconds):
                await self.socket.send({"type": "websocket.send", "text": wire.write(event)})
        except TimeoutError:
            log.warning("closed a connection that was not read for %g s", self.gateway.bounds.send_seconds)
            raise ClientGoneError from None
        except (WebSocketDisconnect, RuntimeError) as error:
            raise ClientGoneError from error

    async def _close(self, code: int, reason: str) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
            async with asyncio.timeout(self.gateway.bounds.send_seconds):
                await self.socket.close(code, reason)
