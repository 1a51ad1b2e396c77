"""Where a turn's events go: a WebSocket, an SSE stream, or nowhere when only the result is asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from tidemill_gateway.events import Event, ResponseEvents

Send = Callable[[Event], Awaitable[None]]

_TOKEN_EVENTS: Final = (".delta", "response.output_item.done")


class ClientGoneError(Exception):
    """The client closed its end, or leaves what it is sent unread."""


async def nowhere(event: Event) -> None:
    """Takes an event and keeps nothing of it."""


class Outlet:
    """Sends one response's events in order, and something at least every ``idle_seconds``.

    Attributes:
        first_token_at: monotonic time at which the first event with generated text had been written; None before.
    """

    def __init__(self, send: Send, events: ResponseEvents, idle_seconds: float) -> None:
        self.first_token_at: float | None = None
        self._send = send
        self._events = events
        self._idle_seconds = idle_seconds
        self._lock = asyncio.Lock()
        self._sent_at = time.monotonic()

    async def write(self, events: Iterable[Event]) -> None:
        """Send ``events``. Raises ClientGoneError."""
        async with self._lock:
            for event in events:
                await self._send(event)
                self._sent_at = time.monotonic()
                if self.first_token_at is None and event["type"].endswith(_TOKEN_EVENTS):
                    self.first_token_at = self._sent_at

    async def keep_alive(self) -> None:
        """Break every long silence with an event, since clients take silence for a lost connection; runs until cancelled."""
        while True:
            silent = time.monotonic() - self._sent_at
            if silent < self._idle_seconds:
                await asyncio.sleep(self._idle_seconds - silent)
            else:
                await self.write([self._events.in_progress()])
