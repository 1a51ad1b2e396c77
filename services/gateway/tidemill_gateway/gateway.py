"""What the endpoints share."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemill_common import telemetry
from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway import wire
from tidemill_gateway.auth import Authenticator, Caller
from tidemill_gateway.catalogue import ModelCard
from tidemill_gateway.conversation import Node
from tidemill_gateway.events import Event
from tidemill_gateway.limits import Limits
from tidemill_gateway.outlet import ClientGoneError, Send
from tidemill_gateway.pipeline import Pipeline
from tidemill_gateway.responses import Responses
from tidemill_gateway.turn import Turn

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of connections and requests: sizes in bytes, times in seconds."""

    message_bytes: int
    pending_messages: int
    connection_seconds: float
    send_seconds: float
    body_seconds: float = 60.0


@dataclass(slots=True)
class Gateway:
    """The running gateway, as its endpoints see it.

    Attributes:
        hosts: Host names that are answered; None for any.
        draining: set once the process was asked to stop.
    """

    authenticator: Authenticator
    limits: Limits
    pipeline: Pipeline
    responses: Responses
    cards: tuple[ModelCard, ...]
    bounds: Bounds
    hosts: frozenset[str] | None
    draining: asyncio.Event = field(default_factory=asyncio.Event)

    async def prepare(self, raw: Mapping[str, Any], caller: Caller, received: float, last: Node | None = None) -> Turn:
        """A turn ready to run. Raises TidemillError, whatever went wrong."""
        try:
            return await self.pipeline.prepare(raw, caller.tenant, received=received, last=last)
        except (TidemillError, ClientGoneError):
            raise
        except Exception as error:
            log.exception("a request could not be prepared")
            raise TidemillError(Reason.INTERNAL, f"{type(error).__name__}: {error}") from error

    async def stream(
        self, raw: Mapping[str, Any], caller: Caller, send: Send, *, hops: bool, last: Node | None = None
    ) -> Node | None:
        """Serve one request as events; its node when a turn may follow it. Raises ClientGoneError."""
        received = time.monotonic()
        try:
            with self.limits.turn():
                turn = await self.prepare(raw, caller, received, last)
                return await turn.run(send, hops=hops)
        except TidemillError as error:
            await send(self.refused(raw, error))
            return None

    def refused(self, raw: Mapping[str, Any], error: TidemillError) -> Event:
        """The event of a request that was not begun."""
        telemetry.ERRORS.labels("gateway", error.reason).inc()
        log.info("refused: %s %s", error.reason, error)
        return wire.refusal(raw, f"resp_{secrets.token_hex(24)}", error)
