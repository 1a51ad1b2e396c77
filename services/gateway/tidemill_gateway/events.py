"""Events and objects of the Responses API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidemill_common.errors import TidemillError
from tidemill_gateway.output import ParseEvent
from tidemill_gateway.request import CreateRequest

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a turn. ``cached`` are prompt tokens that nobody had to compute."""

    input: int
    cached: int
    output: int
    reasoning: int = 0

    def body(self) -> dict[str, Any]:
        """The ``usage`` object."""
        raise NotImplementedError


class ResponseEvents:
    """Builds the events of one response, numbered from 0, and its Response object.

    ``created_at`` is in Unix seconds. Every event carries the request's ``stream_id`` when it has one.
    """

    def __init__(self, response_id: str, request: CreateRequest, created_at: float) -> None:
        raise NotImplementedError

    def created(self) -> list[Event]:
        """``response.created`` and ``response.in_progress``."""
        raise NotImplementedError

    def feed(self, events: Sequence[ParseEvent]) -> list[Event]:
        """Events of parsed output; ``response.output_item.done`` comes with the item's last part."""
        raise NotImplementedError

    def metadata(self, **fields: Any) -> Event:
        """``response.metadata`` with ``fields``, such as hops or headers."""
        raise NotImplementedError

    def completed(self, usage: Usage, completed_at: float) -> Event:
        """``response.completed``."""
        raise NotImplementedError

    def incomplete(self, reason: str, usage: Usage) -> Event:
        """``response.incomplete`` with ``incomplete_details.reason``, such as max_output_tokens."""
        raise NotImplementedError

    def failed(self, error: TidemillError, usage: Usage | None = None) -> Event:
        """``response.failed`` with the error's code and its sentence."""
        raise NotImplementedError

    @property
    def output(self) -> list[dict[str, Any]]:
        """Items that are done, as emitted."""
        raise NotImplementedError

    @property
    def response(self) -> dict[str, Any]:
        """The Response object as it stands."""
        raise NotImplementedError

    @property
    def call_ids(self) -> tuple[str, ...]:
        """Call ids of the calls that are done."""
        raise NotImplementedError


def error_event(error: TidemillError, *, stream_id: str | None = None, sequence_number: int = 0) -> Event:
    """The ``error`` frame of a WebSocket or an SSE stream, with ``status``."""
    raise NotImplementedError


def error_body(error: TidemillError) -> dict[str, Any]:
    """The JSON body of an HTTP error."""
    raise NotImplementedError
