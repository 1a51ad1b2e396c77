"""Items of a conversation, as the Responses API writes them: plain JSON objects, never changed once made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Item = dict[str, Any]

ABORTED = "aborted: the user interrupted; the call may have run in part"
_OUTPUT_OF = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that the model made.

    Attributes:
        call_id: what its output names.
        name: name of the tool.
        arguments: the arguments' text, which may be malformed.
        kind: ``function_call`` or ``custom_tool_call``.
    """

    call_id: str
    name: str
    arguments: str
    kind: str = "function_call"

    def output(self, text: str) -> Item:
        """The item that answers this call."""
        return {"type": _OUTPUT_OF[self.kind], "call_id": self.call_id, "output": text}

    def signature(self) -> str:
        """Name and canonical arguments: equal for calls that ask the same."""
        try:
            arguments = json.dumps(json.loads(self.arguments), sort_keys=True)
        except ValueError:
            arguments = self.arguments
        return f"{self.name} {arguments}"


def call_of(item: Item) -> ToolCall | None:
    """The call that an output item is, or None."""
    kind = item.get("type")
    if kind not in _OUTPUT_OF:
        return None
    arguments = item.get("arguments" if kind == "function_call" else "input")
    return ToolCall(str(item.get("call_id", "")), str(item.get("name", "")), str(arguments or ""), kind)


def message(role: str, text: str) -> Item:
    """An input message of ``role`` (user, developer)."""
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def text_of(item: Item) -> str:
    """Text of an assistant message, refusals too; empty for any other item."""
    if item.get("type") != "message":
        return ""
    parts = item.get("content") or ()
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in parts if isinstance(part, dict))


def unanswered(history: Iterable[Item]) -> list[ToolCall]:
    """Calls of ``history`` that no output answers, in order."""
    calls: dict[str, ToolCall] = {}
    for item in history:
        if call := call_of(item):
            calls[call.call_id] = call
        elif item.get("type") in _OUTPUT_OF.values():
            calls.pop(str(item.get("call_id")), None)
    return list(calls.values())


def has_calls(items: Sequence[Item]) -> bool:
    """Whether any item is a call."""
    return any(call_of(item) for item in items)
