"""Canonical JSON of tools and calls: equal input always renders to equal text, so that prefixes stay cached."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tidemill_common.errors import Reason, TidemillError
from tidemill_tokenizer.items import Tool


def scalar(text: str) -> str:
    """``text`` with lone surrogates, which JSON can smuggle in and UTF-8 cannot hold, as U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def dump(value: object, indent: int | None = None) -> str:
    """JSON as chat templates write it: ", " and ": " between, no escapes beyond what JSON needs.

    Raises ValueError for NaN and infinities.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)


def functions(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Tools as chat templates take them; outer keys in the order that models were trained on, schemas sorted.

    Raises TidemillError(INVALID_TOOLS) for a schema that is no JSON object.
    """
    return [{"type": "function", "function": _function(tool)} for tool in tools]


def _function(tool: Tool) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "parameters": _schema(tool)}


def _schema(tool: Tool) -> dict[str, Any]:
    try:
        schema = json.loads(tool.parameters or "{}")
        if not isinstance(schema, dict):
            raise ValueError(f"is a {type(schema).__name__}")
        result: dict[str, Any] = json.loads(json.dumps(schema, sort_keys=True, allow_nan=False))
    except (ValueError, RecursionError) as error:
        raise TidemillError(
            Reason.INVALID_TOOLS, f"parameters of tool {tool.name!r} are no JSON object: {error}", "tools"
        ) from error
    return result


def arguments(text: str) -> Any:
    """Arguments of a call, parsed; text that is no JSON object stays a string."""
    try:
        value = json.loads(text or "{}")
        dump(value)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text
