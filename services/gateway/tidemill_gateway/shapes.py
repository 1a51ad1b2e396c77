"""Output items in the shapes that clients accept."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from typing import Any

from tidemill_gateway.output import ItemKind
from tidemill_gateway.tools import FlatTool, ToolKind

Item = dict[str, Any]

_PREFIXES = {ToolKind.FUNCTION: "fc", ToolKind.CUSTOM: "ctc", ToolKind.TOOL_SEARCH: "tsc"}
_FENCED = re.compile(r"\s*```[A-Za-z]*\n(?P<body>.*?)\n?```\s*", re.DOTALL)


def new_id(prefix: str) -> str:
    """A fresh id: the prefix and 128 random bits."""
    return f"{prefix}_{secrets.token_hex(16)}"


def opened(kind: ItemKind, tool: FlatTool | None) -> Item:
    """An item that begins, with its ids and nothing in it yet."""
    if kind is ItemKind.MESSAGE:
        return {"type": "message", "id": new_id("msg"), "role": "assistant", "status": "in_progress", "content": []}
    if kind is ItemKind.REASONING or tool is None:
        return {"type": "reasoning", "id": new_id("rs"), "summary": [], "content": [], "status": "in_progress"}
    call = {"id": new_id(_PREFIXES[tool.address.kind]), "call_id": new_id("call"), "status": "in_progress"}
    return {**call, **_CALLS[tool.address.kind](tool, "")}


def closed(item: Item, kind: ItemKind, text: str, tool: FlatTool | None, *, complete: bool) -> Item:
    """``item`` with all its text; of a call, ``text`` is the JSON of its arguments."""
    done = {**item, "status": "completed" if complete else "incomplete"}
    if kind is ItemKind.MESSAGE:
        return {**done, "content": [text_part(text)]}
    if kind is ItemKind.REASONING or tool is None:
        return {**done, "content": [reasoning_part(text)]}
    return {**done, **_CALLS[tool.address.kind](tool, text)}


def text_part(text: str) -> Item:
    """A message's only part."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def reasoning_part(text: str) -> Item:
    """A reasoning item's only part."""
    return {"type": "reasoning_text", "text": text}


def _function(tool: FlatTool, arguments: str) -> Item:
    """The namespace stays a field of its own: clients do not know a tool by its flat name."""
    item = {"type": "function_call", "name": tool.address.name, "arguments": arguments}
    return {**item, "namespace": tool.address.namespace} if tool.address.namespace else item


def _custom(tool: FlatTool, arguments: str) -> Item:
    item = {"type": "custom_tool_call", "name": tool.address.name, "input": _unfenced(str(_object(arguments).get("input", "")))}
    return {**item, "namespace": tool.address.namespace} if tool.address.namespace else item


def _search(tool: FlatTool, arguments: str) -> Item:
    return {"type": "tool_search_call", "execution": "client", "arguments": dict(_object(arguments))}


_CALLS = {ToolKind.FUNCTION: _function, ToolKind.CUSTOM: _custom, ToolKind.TOOL_SEARCH: _search}


def _object(arguments: str) -> Mapping[str, Any]:
    """Arguments as an object; empty for those that were cut."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _unfenced(text: str) -> str:
    """Free-form input without the code fence that models put around it: a fenced script does not run."""
    fenced = _FENCED.fullmatch(text)
    return fenced["body"] if fenced and "```" not in fenced["body"] else text
