"""uvicorn's WebSocket protocol with the two ends of a connection that it leaves rough.

A message above the limit is answered with an error event before the close frame, and what the client still sends of it is read
and thrown away, since closing on unread data resets the connection and loses both. A client that reads nothing can't keep a
closed connection's buffer alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame, Opcode

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway import wire

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent


LINGER_SECONDS: Final = 0.5


class GatewayWebSocket(WebSocketsSansIOProtocol):
    """One WebSocket, as uvicorn drives it."""

    _linger_until = 0.0

    def handle_parser_exception(self) -> None:
        """Say what was wrong with a message that is too big; other violations close the connection as uvicorn does."""
        if self.close_sent:
            self._linger()
            return
        close = self.conn.close_sent
        if close is None or close.code != CloseCode.MESSAGE_TOO_BIG:
            super().handle_parser_exception()
            return
        limit = self.config.ws_max_size
        error = TidemillError(Reason.REQUEST_TOO_LARGE, f"a message has more than {limit} bytes")
        text = wire.write(wire.error_frame(error)).encode()
        self.transport.write(Frame(Opcode.TEXT, text).serialize(mask=False))
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.queue.put_nowait({"type": "websocket.disconnect", "code": int(close.code), "reason": close.reason})
        self.close_sent = True
        self._linger_until = self.loop.time() + self.close_timeout
        self._linger()

    def _linger(self) -> None:
        """Close once the client has stopped sending, or after a bounded time."""
        if self.close_timer is not None:
            self.close_timer.cancel()
        at = min(self.loop.time() + LINGER_SECONDS, self._linger_until)
        self.close_timer = self.loop.call_at(at, self.transport.close)

    async def send(self, message: ASGISendEvent) -> None:
        """Send for the application; after a close it learns that the client is gone."""
        if self.close_sent and self.initial_response is None:
            raise ClientDisconnected
        await super().send(message)

    async def run_asgi(self) -> None:
        """Run the application, then give the client a bounded time to read what is left."""
        await super().run_asgi()
        if not self.disconnected:
            self.loop.call_later(self.close_timeout, self.transport.abort)
