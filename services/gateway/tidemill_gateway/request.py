"""A Responses API request, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway import schemas

Json = Mapping[str, Any]

MAX_ITEMS = 50_000
MAX_LISTED_TOOLS = 1024
MAX_FORCED_ITEMS = 1024

_CONFIG = ConfigDict(strict=True)
_Short = Annotated[str, Field(max_length=512)]


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


@dataclass(frozen=True, slots=True, config=_CONFIG)
class NamedTool:
    """A tool as ``tool_choice`` names it: its type, such as function or custom, and its name ("" for tool_search)."""

    type: str
    name: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True, config=_CONFIG)
class ToolChoice:
    """``tool_choice``: the mode, and the tools it is limited to (None: all)."""

    mode: ChoiceMode = ChoiceMode.AUTO
    only: tuple[NamedTool, ...] | None = None


@dataclass(frozen=True, slots=True, config=_CONFIG)
class TextFormat:
    """``text.format``. ``schema`` is set for json_schema."""

    kind: FormatKind = FormatKind.TEXT
    name: str = ""
    schema: Json | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True, config=_CONFIG)
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
        include: names of extra output; echoed by nothing, honoured by nothing.
        prompt_cache_key: affinity key, or None.
        client_metadata: strings of the client, never rendered.
        metadata: strings of the user, echoed.
        stream_id: lane on the socket, echoed in each event.
        forced_output: items that replace the sampled ones (``tidemill_forced_output``), or None.
        echo: fields that a Response object repeats as given (tool_choice, text, service_tier, user, ...).
    """

    model: Annotated[str, Field(min_length=1, max_length=256)]
    input: str | tuple[Json, ...] = ()
    instructions: str | None = None
    previous_response_id: _Short | None = None
    tools: tuple[Json, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    stream: bool = False
    store: bool = True
    generate: bool = True
    max_output_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = None
    text_format: TextFormat = TextFormat()
    reasoning: Json = field(default_factory=dict)
    include: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    prompt_cache_key: _Short | None = None
    client_metadata: Annotated[Json, Field(max_length=256)] = field(default_factory=dict)
    metadata: Annotated[Json, Field(max_length=64)] = field(default_factory=dict)
    stream_id: _Short | None = None
    forced_output: tuple[Json, ...] | None = None
    echo: Json = field(default_factory=dict)


# Fields that change what a client gets back in a way that nothing here gives; to ignore them would be to lie.
_UNHONOURED = {
    "background": "a response runs while its client listens; leave `background` out",
    "conversation": "conversations are continued by `previous_response_id`",
    "prompt": "prompt templates are not stored here; send `instructions` and `input`",
    "top_logprobs": "log probabilities are not returned",
}
_PLAIN = (
    "model", "instructions", "previous_response_id", "parallel_tool_calls", "stream", "store", "generate", "max_output_tokens",
    "temperature", "top_p", "seed", "reasoning", "prompt_cache_key", "client_metadata", "metadata", "stream_id",
)  # fmt: skip
_ECHOED = ("tool_choice", "text", "service_tier", "safety_identifier", "user", "prompt_cache_retention", "max_tool_calls")


def parse_create(raw: Json) -> CreateRequest:
    """Check one request body (or ``response.create`` frame, whose ``type`` is ignored).

    Null reads as absent and unknown fields are ignored, since clients are newer than servers. Raises TidemillError that names
    the field at fault in ``param``: INVALID_REQUEST, or UNSUPPORTED_INPUT for what can't be honoured.
    """
    if not isinstance(raw, Mapping):
        raise _invalid(f"a request is a JSON object, not {type(raw).__name__}", None)
    given = {name: value for name, value in raw.items() if value is not None}
    _refuse_unhonoured(given)
    if "model" not in given:
        raise _invalid("a request names its model", "model")
    fields = {name: given[name] for name in _PLAIN if name in given}
    fields["input"] = _input(given.get("input", []))
    fields["tools"] = _objects(given.get("tools", []), "tools", MAX_LISTED_TOOLS)
    fields["include"] = _strings(given.get("include", []), "include")
    if "tidemill_forced_output" in given:
        fields["forced_output"] = _objects(given["tidemill_forced_output"], "tidemill_forced_output", MAX_FORCED_ITEMS)
    fields["echo"] = {name: given[name] for name in _ECHOED if name in given}
    fields["tool_choice"] = _tool_choice(given.get("tool_choice", "auto"))
    fields["text_format"] = _text_format(given.get("text", {}))
    try:
        return CreateRequest(**fields)
    except ValidationError as error:
        raise _from_validation(error) from error


def _refuse_unhonoured(given: Json) -> None:
    for name, why in _UNHONOURED.items():
        if given.get(name) not in (None, False, 0):
            raise TidemillError(Reason.UNSUPPORTED_INPUT, f"{name} is not supported: {why}", name)
    if given.get("n", 1) != 1:
        raise TidemillError(Reason.UNSUPPORTED_INPUT, f"n must be 1, is {given['n']!r}: one answer is given", "n")


def _input(value: Any) -> str | tuple[Json, ...]:
    return value if isinstance(value, str) else _objects(value, "input", MAX_ITEMS)


def _objects(value: Any, param: str, limit: int) -> tuple[Json, ...]:
    if not isinstance(value, list):
        raise _invalid(f"{param} must be a list, is {str(value)[:80]!r}", param)
    if len(value) > limit:
        raise _invalid(f"{param} has {len(value)} elements; at most {limit} are taken", param)
    for index, element in enumerate(value):
        if not isinstance(element, Mapping):
            raise _invalid(f"{param}[{index}] must be an object, is {str(element)[:80]!r}", f"{param}[{index}]")
    return tuple(value)


def _strings(value: Any, param: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(element, str) for element in value):
        raise _invalid(f"{param} must be a list of strings, is {str(value)[:80]!r}", param)
    return tuple(value)


def _tool_choice(raw: Any) -> ToolChoice:
    if isinstance(raw, str) and raw in tuple(ChoiceMode):
        return ToolChoice(ChoiceMode(raw))
    kind = raw.get("type") if isinstance(raw, Mapping) else None
    if kind == "allowed_tools" and isinstance(raw.get("tools"), list) and raw.get("mode", "auto") in ("auto", "required"):
        return ToolChoice(ChoiceMode(raw.get("mode", "auto")), tuple(_named_tool(tool) for tool in raw["tools"]))
    if kind in ("function", "custom", "tool_search"):
        return ToolChoice(ChoiceMode.REQUIRED, (_named_tool(raw),))
    raise _invalid(
        f"tool_choice must be auto, none, required or name a tool that is given, is {str(raw)[:200]!r}", "tool_choice"
    )


def _named_tool(raw: Any) -> NamedTool:
    fields = {key: raw.get(key) or "" for key in ("type", "name", "namespace")} if isinstance(raw, Mapping) else {}
    named = bool(fields) and all(isinstance(value, str) for value in fields.values())
    if not named or not (fields["name"] or fields["type"] == "tool_search"):
        raise _invalid(f"tool_choice names a tool by type and name, both strings; got {str(raw)[:200]!r}", "tool_choice")
    return NamedTool(**fields)


def _text_format(text: Any) -> TextFormat:
    raw = text.get("format") or {} if isinstance(text, Mapping) else None
    if not isinstance(raw, Mapping):
        raise _invalid("text must be an object, and text.format one too", "text")
    kind = raw.get("type", "text")
    if kind not in tuple(FormatKind):
        raise _invalid(f"text.format.type must be text, json_object or json_schema, is {str(kind)[:80]!r}", "text.format.type")
    if kind != FormatKind.JSON_SCHEMA:
        return TextFormat(FormatKind(kind))
    return TextFormat(FormatKind.JSON_SCHEMA, str(raw.get("name") or ""), _format_schema(raw), raw.get("strict") is True)


def _format_schema(raw: Json) -> Json:
    schema = raw.get("schema")
    if not isinstance(schema, Mapping):
        raise _invalid("text.format.schema must be a JSON schema object", "text.format.schema")
    if schemas.depth_exceeds(schema, schemas.MAX_SCHEMA_DEPTH):
        raise _invalid(f"text.format.schema nests deeper than {schemas.MAX_SCHEMA_DEPTH}", "text.format.schema")
    text = schemas.canonical(schema)
    if len(text) > schemas.MAX_SCHEMA_BYTES:
        raise _invalid(f"text.format.schema has more than {schemas.MAX_SCHEMA_BYTES} characters", "text.format.schema")
    if wrong := schemas.problem(text, raw.get("strict") is True):
        raise _invalid(f"text.format.schema is unusable: {wrong}", "text.format.schema")
    return schema


def _from_validation(error: ValidationError) -> TidemillError:
    """The first complaint."""
    first = error.errors(include_url=False)[0]
    param = ".".join(str(part) for part in first["loc"])
    return _invalid(f"{param}: {first['msg']}; got {str(first['input'])[:80]!r}", param)


def _invalid(message: str, param: str | None) -> TidemillError:
    return TidemillError(Reason.INVALID_REQUEST, message, param)
