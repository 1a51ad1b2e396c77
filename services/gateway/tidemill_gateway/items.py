"""Responses input items as the conversation elements that the tokenizer renders."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway.content import TEXT_PARTS, item_type, json_value, lines, reasoning_text, turn_digest, turn_digests
from tidemill_gateway.tools import SEARCH_NAME, Address, FlatTool, ToolKind, ToolSet

Raw = Mapping[str, Any]

__all__ = [
    "CallLedger", "Entry", "Message", "ModelOutput", "ModelTurn", "ParsedInput", "Reasoning", "RenderItem", "ToolCall",
    "ToolList", "ToolOutput", "TurnItem", "parse_input", "parse_output", "turn_digest", "turn_digests",
]  # fmt: skip

MISSING_OUTPUT = "aborted"
KNOWN_CALLS = 1024

_ROLES = frozenset({"system", "developer", "user", "assistant"})
_OTHER_PARTS = frozenset({"input_image", "input_file", "input_audio", "input_video", "computer_screenshot"})


@dataclass(frozen=True, slots=True)
class Message:
    """Text by a role: system, developer, user or assistant."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call given as text: flat name, arguments as JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool returned."""

    output: str


@dataclass(frozen=True, slots=True)
class ToolList:
    """Tools added in mid-conversation."""

    tools: tuple[FlatTool, ...]


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Thinking given as text."""

    text: str


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """A turn that the model generated, as packed little-endian uint32 ids."""

    token_ids: bytes


RenderItem = Message | ToolCall | ToolOutput | ToolList | Reasoning | ModelOutput
TurnItem = Message | ToolCall | Reasoning


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """Consecutive items of one model turn, resent by a client.

    Attributes:
        items: the turn as text, for a turn that nobody remembers the ids of.
        digest: what ``turn_digest`` gives for it; the key under which its sampled ids may be found.
    """

    items: tuple[TurnItem, ...]
    digest: bytes


Entry = Message | ToolOutput | ToolList | ModelTurn


@dataclass(frozen=True, slots=True)
class CallLedger:
    """Call ids of a conversation: those without an output yet, and the latest ones seen (bounded)."""

    open: tuple[str, ...] = ()
    known: tuple[str, ...] = ()

    def called(self, call_ids: Sequence[str]) -> CallLedger:
        """The ledger after a model turn that made these calls."""
        return CallLedger((*self.open, *call_ids), (*self.known, *call_ids)[-KNOWN_CALLS:])

    def answered(self, call_ids: Sequence[str]) -> CallLedger:
        """The ledger after outputs of these calls."""
        done = frozenset(call_ids)
        return CallLedger(tuple(call for call in self.open if call not in done), self.known)


@dataclass(frozen=True, slots=True)
class ParsedInput:
    """Input, read.

    Attributes:
        entries: conversation elements in order; missing tool outputs stand in as "aborted".
        tools: the conversation's tools, with those that the items added.
        calls: the ledger after these items.
    """

    entries: tuple[Entry, ...]
    tools: ToolSet
    calls: CallLedger


def parse_input(
    raw: str | Sequence[Raw],
    tools: ToolSet,
    *,
    model: str,
    calls: CallLedger = CallLedger(),
    closing: bool = True,
    param: str = "input",
) -> ParsedInput:
    """Read ``input``: a user's text, or items that follow a conversation with ``tools`` and ``calls``.

    Item ids, statuses and annotations are ignored. With ``closing`` (a turn is generated next) every open call that has no
    output among the items gets "aborted"; an output of an unknown call is refused, since it would answer nothing.

    Raises TidemillError: INVALID_REQUEST naming the item, UNSUPPORTED_INPUT for images, audio and files, INVALID_TOOLS.
    """
    if isinstance(raw, str):
        raw = [{"type": "message", "role": "user", "content": raw}]
    answered = frozenset(str(item.get("call_id")) for item in raw if item_type(item) in _OUTPUTS)
    reader = _Reader(tools, model, calls, answered)
    for index, item in enumerate(raw):
        reader.read(item, f"{param}[{index}]")
    return reader.finish(closing)


def parse_output(raw: Sequence[Raw], tools: ToolSet, *, model: str, param: str) -> tuple[TurnItem, ...]:
    """Read output items (forced output, scripts): assistant messages, reasoning and calls of one turn.

    Raises TidemillError(INVALID_REQUEST) for other items, and as ``parse_input``.
    """
    reader = _Reader(tools, model, CallLedger(), frozenset())
    for index, item in enumerate(raw):
        where = f"{param}[{index}]"
        if not _is_model_item(item):
            raise _invalid(f"{where} of type {item_type(item)!r} is no output item", f"{where}.type")
        reader.turn.extend(reader.turn_items(item, where))
    return tuple(reader.turn)


def _is_model_item(item: Raw) -> bool:
    return item.get("role") == "assistant" if item_type(item) == "message" else item_type(item) in _MODEL_ITEMS


@dataclass
class _Reader:
    """Collects entries. ``turn`` and ``turn_raw`` hold the model turn that is being read."""

    tools: ToolSet
    model: str
    calls: CallLedger
    answered: frozenset[str]
    entries: list[Entry] = field(default_factory=list)
    turn: list[TurnItem] = field(default_factory=list)
    turn_raw: list[Raw] = field(default_factory=list)

    def read(self, item: Raw, where: str) -> None:
        if _is_model_item(item):
            self.turn.extend(self.turn_items(item, where))
            self.turn_raw.append(item)
            return
        self.close_turn()
        reader = _READERS.get(item_type(item))
        if reader is None:
            raise _invalid(f"{where} has the type {item_type(item)[:80]!r}, which is not supported", f"{where}.type")
        if item_type(item) not in _OUTPUTS:
            self.abort_missing()
        reader(self, item, where)

    def finish(self, closing: bool) -> ParsedInput:
        self.close_turn()
        if closing:
            self.abort_missing()
        return ParsedInput(tuple(self.entries), self.tools, self.calls)

    def close_turn(self) -> None:
        """End the model turn: what follows is not the model's."""
        if not self.turn_raw:
            return
        if self.turn:
            self.entries.append(ModelTurn(tuple(self.turn), turn_digest(self.turn_raw)))
        called = [str(item["call_id"]) for item in self.turn_raw if item.get("call_id")]
        self.calls = self.calls.called(called)
        self.turn, self.turn_raw = [], []

    def abort_missing(self) -> None:
        """Answer the open calls that none of the items answers."""
        missing = [call for call in self.calls.open if call not in self.answered]
        self.entries.extend(ToolOutput(MISSING_OUTPUT) for _ in missing)
        self.calls = self.calls.answered(missing)

    def turn_items(self, item: Raw, where: str) -> list[TurnItem]:
        kind = item_type(item)
        if kind == "message":
            return [Message("assistant", self.text(item.get("content"), f"{where}.content"))]
        if kind == "reasoning":
            text = reasoning_text(item)
            return [Reasoning(text)] if text else []
        return [self.call(item, where)]

    def call(self, item: Raw, where: str) -> ToolCall:
        kind = item_type(item)
        if kind == "tool_search_call":
            return ToolCall(self.flat(ToolKind.TOOL_SEARCH, "", SEARCH_NAME), _arguments(item.get("arguments")))
        if kind == "local_shell_call":
            return ToolCall("local_shell", _arguments(item.get("action")))
        name, namespace = _string(item, "name", where), item.get("namespace") or ""
        if kind == "custom_tool_call":
            body = json.dumps({"input": _string(item, "input", where)}, ensure_ascii=False)
            return ToolCall(self.flat(ToolKind.CUSTOM, namespace, name), body)
        return ToolCall(self.flat(ToolKind.FUNCTION, namespace, name), _arguments(_string(item, "arguments", where)))

    def flat(self, kind: ToolKind, namespace: str, name: str) -> str:
        """Flat name of a call's tool; a client that leaves its namespace out still means the only tool of that name."""
        address = Address(kind, str(namespace), name)
        alike = [tool for tool in self.tools.tools if (tool.address.kind, tool.address.name) == (kind, name)]
        if not namespace and len(alike) == 1:
            return alike[0].name
        return self.tools.flat_name(address)

    def message(self, item: Raw, where: str) -> None:
        role = str(item.get("role"))
        if role not in _ROLES:
            raise _invalid(f"{where}.role must be one of {', '.join(sorted(_ROLES))}, is {role[:80]!r}", f"{where}.role")
        self.entries.append(Message(role, self.text(item.get("content"), f"{where}.content")))

    def output(self, item: Raw, where: str) -> None:
        call_id = self.answer(item, where)
        output = item.get("output")
        self.entries.append(ToolOutput(self.text(output, f"{where}.output") if output is not None else ""))
        self.calls = self.calls.answered([call_id])

    def search_output(self, item: Raw, where: str) -> None:
        """Found tools: their names answer the call, their schemas follow."""
        call_id = self.answer(item, where)
        self.tools, found = self.tools.extended(_tool_specs(item, where), f"{where}.tools")
        names = ", ".join(tool.name for tool in found)
        self.entries.append(ToolOutput(f"Found: {names}" if found else "No tools found"))
        if found:
            self.entries.append(ToolList(found))
        self.calls = self.calls.answered([call_id])

    def answer(self, item: Raw, where: str) -> str:
        call_id = _string(item, "call_id", where)
        if call_id not in self.calls.known:
            raise _invalid(f"{where} answers the call {call_id[:80]!r}, which is not in the conversation", f"{where}.call_id")
        return call_id

    def added_tools(self, item: Raw, where: str) -> None:
        self.tools, added = self.tools.extended(_tool_specs(item, where), f"{where}.tools")
        if added:
            self.entries.append(ToolList(added))

    def compaction(self, item: Raw, where: str) -> None:
        """A summary that stands for the history before it."""
        self.entries.append(Message("user", _string(item, "encrypted_content", where)))

    def text(self, content: Any, where: str) -> str:
        if isinstance(content, str):
            return content
        if not isinstance(content, list):
            raise _invalid(f"{where} must be text or a list of parts, is {str(content)[:80]!r}", where)
        return lines(self.part(part, f"{where}[{index}]") for index, part in enumerate(content))

    def part(self, part: Any, where: str) -> str:
        kind = str(part.get("type")) if isinstance(part, Mapping) else ""
        if kind in _OTHER_PARTS:
            message = f"model {self.model!r} takes text; {kind} at {where} is not supported"
            raise TidemillError(Reason.UNSUPPORTED_INPUT, message, where)
        text = part.get(TEXT_PARTS[kind]) if kind in TEXT_PARTS else None
        if not isinstance(text, str):
            raise _invalid(f"{where} must be a text part such as input_text, is {str(part)[:120]!r}", where)
        return text


_READERS: Mapping[str, Callable[[_Reader, Raw, str], None]] = {
    "message": _Reader.message,
    "function_call_output": _Reader.output,
    "custom_tool_call_output": _Reader.output,
    "local_shell_call_output": _Reader.output,
    "tool_search_output": _Reader.search_output,
    "additional_tools": _Reader.added_tools,
    "compaction": _Reader.compaction,
}
_OUTPUTS = frozenset(kind for kind in _READERS if kind.endswith("_output"))
_MODEL_ITEMS = frozenset({"reasoning", "function_call", "custom_tool_call", "tool_search_call", "local_shell_call"})


def _tool_specs(item: Raw, where: str) -> Sequence[Raw]:
    specs = item.get("tools")
    if not isinstance(specs, list):
        raise _invalid(f"{where}.tools must be a list", f"{where}.tools")
    return specs


def _arguments(given: Any) -> str:
    """Arguments as JSON text: text that is a JSON object stays as it is; anything else becomes its JSON value."""
    if isinstance(given, str) and isinstance(json_value(given), dict):
        return given
    return json.dumps(given if given is not None else {}, ensure_ascii=False)


def _string(item: Raw, key: str, where: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise _invalid(f"{where}.{key} must be a string, is {str(value)[:80]!r}", f"{where}.{key}")
    return value


def _invalid(message: str, param: str) -> TidemillError:
    return TidemillError(Reason.INVALID_REQUEST, message, param)
