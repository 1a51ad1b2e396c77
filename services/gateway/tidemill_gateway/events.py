"""Events and objects of the Responses API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemill_common.errors import TidemillError
from tidemill_gateway import shapes
from tidemill_gateway.output import ItemBegun, ItemDelta, ItemEnded, ItemKind, ParseEvent
from tidemill_gateway.request import CreateRequest, FormatKind
from tidemill_gateway.tools import FlatTool, ToolKind

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
        return {
            "input_tokens": self.input,
            "input_tokens_details": {"cached_tokens": self.cached, "cache_write_tokens": 0},
            "output_tokens": self.output,
            "output_tokens_details": {"reasoning_tokens": self.reasoning},
            "total_tokens": self.input + self.output,
        }


@dataclass(slots=True)
class _Open:
    item: shapes.Item
    kind: ItemKind
    tool: FlatTool | None
    parts: list[str] = field(default_factory=list)

    @property
    def call_kind(self) -> ToolKind | None:
        return self.tool.address.kind if self.tool else None


class ResponseEvents:
    """Builds the events of one response, numbered from 0, and its Response object.

    ``created_at`` is in Unix seconds. Every event carries the request's ``stream_id`` when it has one. The Response object does
    not repeat ``tools`` and ``instructions``: the client has them, and they would be most of a turn's bytes.
    """

    def __init__(self, response_id: str, request: CreateRequest, created_at: float) -> None:
        self._request = request
        self._sequence = 0
        self._open: _Open | None = None
        self._output: list[dict[str, Any]] = []
        self._call_ids: list[str] = []
        self._head = _head(response_id, request, created_at)

    @property
    def output(self) -> list[dict[str, Any]]:
        """Items that ended, as emitted; a call that was cut is among them with the status incomplete."""
        return list(self._output)

    @property
    def response(self) -> dict[str, Any]:
        """The Response object as it stands."""
        return {**self._head, "output": list(self._output)}

    @property
    def call_ids(self) -> tuple[str, ...]:
        """Call ids of the calls that are done."""
        return tuple(self._call_ids)

    def created(self) -> list[Event]:
        """``response.created`` and ``response.in_progress``."""
        return [self._event(f"response.{name}", response=self.response) for name in ("created", "in_progress")]

    def in_progress(self) -> Event:
        """``response.in_progress`` once more: a sign of life in a long silence."""
        return self._event("response.in_progress", response=self.response)

    def feed(self, events: Sequence[ParseEvent]) -> list[Event]:
        """Events of parsed output; ``response.output_item.done`` comes with the item's last part.

        A call that was cut is never done, since clients run calls that are.
        """
        out: list[Event] = []
        for event in events:
            if isinstance(event, ItemBegun):
                out += self._begin(event)
            elif isinstance(event, ItemDelta):
                out += self._delta(event.text)
            else:
                out += self._end(event)
        return out

    def metadata(self, **fields: Any) -> Event:
        """``response.metadata`` with ``fields``, such as hops or headers."""
        return self._event("response.metadata", response_id=self._head["id"], **fields)

    def completed(self, usage: Usage, completed_at: float) -> Event:
        """``response.completed``."""
        return self._finish("completed", usage=usage.body(), completed_at=completed_at)

    def incomplete(self, reason: str, usage: Usage) -> Event:
        """``response.incomplete`` with ``incomplete_details.reason``, such as max_output_tokens."""
        return self._finish("incomplete", usage=usage.body(), incomplete_details={"reason": reason})

    def failed(self, error: TidemillError, usage: Usage | None = None) -> Event:
        """``response.failed`` with the error's code and its sentence."""
        fields = {"usage": usage.body()} if usage else {}
        return self._finish("failed", error={"code": error.entry.code, "message": error.sentence()}, **fields)

    def _finish(self, status: str, **fields: Any) -> Event:
        self._head |= {"status": status, **fields}
        return self._event(f"response.{status}", response=self.response)

    def _event(self, kind: str, **fields: Any) -> Event:
        event = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        if self._request.stream_id is not None:
            event["stream_id"] = self._request.stream_id
        return event

    def _of_item(self, kind: str, opened: _Open, **fields: Any) -> Event:
        return self._event(kind, item_id=opened.item["id"], output_index=len(self._output), **fields)

    def _begin(self, event: ItemBegun) -> list[Event]:
        opened = self._open = _Open(shapes.opened(event.kind, event.tool), event.kind, event.tool)
        added = [self._event("response.output_item.added", output_index=len(self._output), item=opened.item)]
        if part := _PARTS.get(event.kind):
            added.append(self._of_item("response.content_part.added", opened, content_index=0, part=part("")))
        return added

    def _delta(self, text: str) -> list[Event]:
        opened = self._open
        if opened is None or (name := _DELTAS.get(opened.call_kind or opened.kind)) is None:
            return []
        if opened.call_kind is not None:
            return [self._of_item(f"response.{name}.delta", opened, delta=text)]
        extra: dict[str, Any] = {"logprobs": []} if opened.kind is ItemKind.MESSAGE else {}
        return [self._of_item(f"response.{name}.delta", opened, content_index=0, delta=text, **extra)]

    def _end(self, event: ItemEnded) -> list[Event]:
        opened, self._open = self._open, None
        if opened is None:
            return []
        item = shapes.closed(opened.item, event.kind, event.text, event.tool, complete=event.complete)
        done: list[Event] = []
        if event.kind is not ItemKind.CALL:
            done = self._text_done(opened, event.text)
        elif event.complete:
            done = self._call_done(opened, item)
            self._call_ids.append(item["call_id"])
        if event.complete or event.kind is not ItemKind.CALL:
            done.append(self._event("response.output_item.done", output_index=len(self._output), item=item))
        self._output.append(item)
        return done

    def _text_done(self, opened: _Open, text: str) -> list[Event]:
        extra: dict[str, Any] = {"logprobs": []} if opened.kind is ItemKind.MESSAGE else {}
        name = f"response.{_DELTAS[opened.kind]}.done"
        return [
            self._of_item(name, opened, content_index=0, text=text, **extra),
            self._of_item("response.content_part.done", opened, content_index=0, part=_PARTS[opened.kind](text)),
        ]

    def _call_done(self, opened: _Open, item: shapes.Item) -> list[Event]:
        if opened.call_kind is ToolKind.FUNCTION:
            name = "response.function_call_arguments.done"
            return [self._of_item(name, opened, name=item["name"], arguments=item["arguments"])]
        if opened.call_kind is ToolKind.CUSTOM:
            name = "response.custom_tool_call_input"
            deltas = [self._of_item(f"{name}.delta", opened, delta=item["input"])] if item["input"] else []
            return [*deltas, self._of_item(f"{name}.done", opened, input=item["input"])]
        return []


# A custom tool's input is inside JSON and known only when that is whole, so its one delta comes at the end.
_DELTAS: dict[ItemKind | ToolKind, str] = {
    ItemKind.MESSAGE: "output_text",
    ItemKind.REASONING: "reasoning_text",
    ToolKind.FUNCTION: "function_call_arguments",
}
_PARTS: dict[ItemKind, Callable[[str], shapes.Item]] = {
    ItemKind.MESSAGE: shapes.text_part,
    ItemKind.REASONING: shapes.reasoning_part,
}


def error_event(error: TidemillError, *, stream_id: str | None = None, sequence_number: int = 0) -> Event:
    """The ``error`` frame of a WebSocket or an SSE stream, with ``status``."""
    frame = {"type": "error", "sequence_number": sequence_number, "status": error.entry.http, **error_body(error)}
    frame |= {"code": error.entry.code, "message": error.sentence(), "param": error.param}
    return frame | ({"stream_id": stream_id} if stream_id is not None else {})


def error_body(error: TidemillError) -> dict[str, Any]:
    """The JSON body of an HTTP error."""
    entry = error.entry
    return {"error": {"type": entry.type, "code": entry.code, "message": error.sentence(), "param": error.param}}


def _head(response_id: str, request: CreateRequest, created_at: float) -> dict[str, Any]:
    """The Response object but for its output."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": request.max_output_tokens,
        "metadata": dict(request.metadata),
        "model": request.model,
        "parallel_tool_calls": request.parallel_tool_calls,
        "previous_response_id": request.previous_response_id,
        "prompt_cache_key": request.prompt_cache_key,
        "reasoning": dict(request.reasoning),
        "store": request.store,
        "temperature": request.temperature,
        "text": _text(request),
        "tool_choice": request.tool_choice.mode.value,
        "tools": [],
        "top_p": request.top_p,
        "truncation": "disabled",
        "usage": None,
        **request.echo,
    }


def _text(request: CreateRequest) -> dict[str, Any]:
    kind = request.text_format.kind
    if kind is not FormatKind.JSON_SCHEMA:
        return {"format": {"type": kind.value}}
    schema = dict(request.text_format.schema or {})
    return {
        "format": {"type": kind.value, "name": request.text_format.name, "schema": schema, "strict": request.text_format.strict}
    }
