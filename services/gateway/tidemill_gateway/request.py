"""A Responses API request, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Json = Mapping[str, Any]


class ChoiceMode(StrEnum):
    """Whether the model may, must not or must call a tool."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


class FormatKind(StrEnum):
    """What free text must look like."""

    TEXT = "text"
    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"


@dataclass(frozen=True, slots=True)
class NamedTool:
    """A tool as ``tool_choice`` names it: its type, such as function or custom, and its name ("" for tool_search)."""

    type: str
    name: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """``tool_choice``: the mode, and the tools it is limited to (None: all)."""

    mode: ChoiceMode = ChoiceMode.AUTO
    only: tuple[NamedTool, ...] | None = None


@dataclass(frozen=True, slots=True)
class TextFormat:
    """``text.format``. ``schema`` is set for json_schema."""

    kind: FormatKind = FormatKind.TEXT
    name: str = ""
    schema: Json | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """One ``response.create``, checked but for its items and tools, which ``items`` and ``tools`` read.

    Attributes:
        model: name of a served model or of a script.
        input: text, or Responses items.
        instructions: system text of this turn; None when absent.
        previous_response_id: the response that ``input`` follows.
        tools: Responses tools as given.
        tool_choice: see ``ToolChoice``.
        parallel_tool_calls: whether one turn may hold several calls.
        stream: whether the client reads events (HTTP; a WebSocket always does).
        store: whether the response outlives its connection.
        generate: False computes the prompt only.
        max_output_tokens: bound of generated tokens, or None.
        temperature: 0 to 2, or None for the server's default.
        top_p: in (0, 1], or None.
        seed: of the sampler, or None.
        text_format: what free text must look like.
        reasoning: echoed.
        include: echoed; names of extra output.
        prompt_cache_key: affinity key, or None.
        client_metadata: strings of the client, never rendered.
        metadata: strings of the user, echoed.
        stream_id: lane on the socket, echoed in each event.
        forced_output: items that replace the sampled ones (``tidemill_forced_output``), or None.
        echo: further fields that a Response object repeats (service_tier, safety_identifier, user, ...).
    """

    model: str
    input: str | tuple[Json, ...] = ()
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: tuple[Json, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    stream: bool = False
    store: bool = True
    generate: bool = True
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    text_format: TextFormat = TextFormat()
    reasoning: Json = field(default_factory=dict)
    include: tuple[str, ...] = ()
    prompt_cache_key: str | None = None
    client_metadata: Json = field(default_factory=dict)
    metadata: Json = field(default_factory=dict)
    stream_id: str | None = None
    forced_output: tuple[Json, ...] | None = None
    echo: Json = field(default_factory=dict)


def parse_create(raw: Json) -> CreateRequest:
    """Check one request body (or ``response.create`` frame, whose ``type`` is ignored).

    Unknown fields are ignored. Raises TidemillError(INVALID_REQUEST) that names the field at fault in ``param``.
    """
    raise NotImplementedError
