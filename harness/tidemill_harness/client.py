"""The WebSocket to the gateway: one for the whole task, a deadline on every wait, one whole resend when the server lost the
conversation or the socket broke, and bounded patience when the server is busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from tidemill_common import __version__
from tidemill_common.errors import Reason, TidemillError
from tidemill_harness import frames
from tidemill_harness.conversation import Conversation
from tidemill_harness.endpoint import Endpoint, refused, unreachable
from tidemill_harness.events import ItemDone, Resent, TurnDone, TurnEvent, Usage, Waiting
from tidemill_harness.frames import Busy, Ended, Hops, Lost, Request
from tidemill_harness.items import Item

HOPS_HEADER = "x-tidemill-hops"
MAX_FRAME_BYTES = 64 << 20
_TOO_BIG = 1009


@dataclass(frozen=True, slots=True)
class Patience:
    """How long, in seconds, and how often the client waits.

    Attributes:
        connect: for a connection.
        reconnect: for a server to come back once the connection broke.
        send: for a request to be taken.
        event: for the next event of a running turn.
        close: for the closing handshake.
        busy_retries: times that a turn is asked again when the server is busy.
        busy_longest: longest wait before one of them.
    """

    connect: float = 15.0
    reconnect: float = 20.0
    send: float = 30.0
    event: float = 300.0
    close: float = 3.0
    busy_retries: int = 5
    busy_longest: float = 60.0


class ResponsesClient:
    """Turns of one conversation over one WebSocket.

    Attributes:
        conversation: its history.
        connections: sockets opened so far; 1 for a task without trouble.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        request: Request,
        conversation: Conversation | None = None,
        patience: Patience | None = None,
        hops: bool = False,
    ) -> None:
        self.endpoint = endpoint
        self.request = request
        self.conversation = conversation or Conversation()
        self.patience = patience or Patience()
        self.connections = 0
        self._hops = hops
        self._socket: ClientConnection | None = None
        self._mid_turn = False  # a request is out whose end has not been read

    async def __aenter__(self) -> Self:
        """Connect. Raises TidemillError."""
        await self._connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the socket."""
        await self._disconnect()

    async def turn(
        self, items: Sequence[Item], tool_choice: str = "auto", forced: Sequence[Item] | None = None
    ) -> AsyncGenerator[TurnEvent, None]:
        """Add ``items`` and let the model answer them. The last event is a TurnDone. Raises TidemillError.

        A turn given up before its end (the generator is closed) costs the socket, so that the server stops generating.
        """
        self.conversation.append(items)
        retries, clock = _Retries(self.patience), _Clock()
        try:
            while True:
                try:
                    async with contextlib.aclosing(self._attempt(tool_choice, forced, clock)) as events:
                        async for event in events:
                            yield event
                    return
                except (Lost, Busy) as trouble:
                    if await self._recover(trouble):
                        yield TurnDone("", Usage(), clock.ttft, clock.elapsed())
                        return
                    again = retries.after(trouble)
                yield again
                if isinstance(again, Waiting):
                    await asyncio.sleep(again.seconds)
        except TidemillError:
            self._mid_turn = False
            self.conversation.withdraw()
            raise
        finally:
            if self._mid_turn:
                self._mid_turn = False
                self.conversation.cut()
                self.conversation.forget()
                await self._disconnect()

    async def _recover(self, trouble: Lost | Busy) -> bool:
        """Make ready for another attempt; True when the turn must not be asked again, since one of its calls may have run."""
        self._mid_turn = False
        kept = self.conversation.cut()
        if isinstance(trouble, Lost):
            self.conversation.forget()
            if trouble.reconnect:
                await self._disconnect()
        return kept

    async def _attempt(self, tool_choice: str, forced: Sequence[Item] | None, clock: _Clock) -> AsyncGenerator[TurnEvent, None]:
        """Send the turn once. Raises Lost, Busy or TidemillError."""
        self._mid_turn = True
        socket = self._socket or await self._reconnect()
        previous, items = self.conversation.delta()
        await self._send(socket, self.request.frame(items, previous, tool_choice, forced))
        hops: tuple[dict[str, Any], ...] = ()
        while True:
            meaning = frames.read(await self._receive(socket, clock))
            if isinstance(meaning, Hops):
                hops += meaning.hops
            elif isinstance(meaning, Ended):
                self._mid_turn = False
                self.conversation.commit(meaning.response_id)
                yield TurnDone(meaning.response_id, meaning.usage, clock.ttft, clock.elapsed(), meaning.incomplete, hops)
                return
            elif meaning is not None:
                if isinstance(meaning, ItemDone):
                    self.conversation.open.append(meaning.item)
                yield meaning

    async def _send(self, socket: ClientConnection, frame: dict[str, Any]) -> None:
        text = json.dumps(frame, ensure_ascii=False, separators=(",", ":"))
        try:
            async with asyncio.timeout(self.patience.send):
                await socket.send(text)
        except TimeoutError as error:
            raise Lost(f"the server took no request for {self.patience.send:g} s", reconnect=True) from error
        except ConnectionClosed as error:
            raise _broken(error) from error

    async def _receive(self, socket: ClientConnection, clock: _Clock) -> dict[str, Any]:
        """The next frame that is a JSON object; the clock is stopped by its arrival, before it is parsed."""
        while True:
            try:
                async with asyncio.timeout(self.patience.event):
                    text = await socket.recv()
            except TimeoutError as error:
                raise Lost(f"no event came for {self.patience.event:g} s", reconnect=True) from error
            except ConnectionClosed as error:
                raise _broken(error) from error
            arrived = time.monotonic()
            with contextlib.suppress(ValueError):
                frame = json.loads(text)
                if isinstance(frame, dict):
                    if frames.carries_token(frame):
                        clock.token(arrived)
                    return frame

    async def _connect(self) -> ClientConnection:
        """Open the socket. Raises TidemillError."""
        try:
            self._socket = await connect(
                self.endpoint.websocket_url,
                additional_headers=self.endpoint.headers() | ({HOPS_HEADER: "1"} if self._hops else {}),
                user_agent_header=f"tidemill/{__version__}",
                compression=None,
                proxy=None if self.endpoint.loopback else True,
                open_timeout=self.patience.connect,
                close_timeout=self.patience.close,
                ping_timeout=60,
                max_size=MAX_FRAME_BYTES,
            )
        except InvalidStatus as error:
            raise refused(self.endpoint, error.response.status_code, _json(error.response.body)) from error
        except (OSError, TimeoutError, InvalidHandshake) as error:
            raise unreachable(self.endpoint, error) from error
        self.connections += 1
        return self._socket

    async def _reconnect(self) -> ClientConnection:
        """Open the socket again; a gateway that restarts is waited for. Raises TidemillError."""
        pause, clock = 0.1, _Clock()
        while True:
            try:
                return await self._connect()
            except TidemillError as error:
                if error.reason not in frames.PASSING or clock.elapsed() + pause > self.patience.reconnect:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, 2.0)

    async def _disconnect(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()


class _Clock:
    """Times of one turn: it starts with the first send, and retries count."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.ttft: float | None = None

    def token(self, arrived: float) -> None:
        """A frame with a generated token arrived."""
        if self.ttft is None:
            self.ttft = arrived - self.started

    def elapsed(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self.started


class _Retries:
    """What one turn may still try again."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._busy = 0
        self._resent = False

    def after(self, trouble: Lost | Busy) -> Resent | Waiting:
        """What to do next. Raises TidemillError when nothing is left."""
        if isinstance(trouble, Lost):
            if self._resent:
                raise TidemillError(Reason.UNAVAILABLE, f"the whole was sent once more, and again {trouble.why}") from trouble
            self._resent = True
            return Resent(trouble.why)
        self._busy += 1
        if self._busy > self._patience.busy_retries:
            raise trouble.error from trouble
        wished = 0.25 * 2**self._busy if trouble.seconds is None else trouble.seconds
        return Waiting(min(wished, self._patience.busy_longest), trouble.error.message)


def _broken(error: ConnectionClosed) -> Lost | TidemillError:
    code = error.rcvd.code if error.rcvd else None
    if code == _TOO_BIG:
        return TidemillError(Reason.REQUEST_TOO_LARGE, "the gateway closed the connection over the size of the request")
    return Lost(f"the connection broke ({'no close frame' if code is None else f'close code {code}'})", reconnect=True)


def _json(body: bytes | None) -> object:
    with contextlib.suppress(ValueError):
        return json.loads(body or b"")
    return None
