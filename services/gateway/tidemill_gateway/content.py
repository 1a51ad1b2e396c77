"""What Responses items say: their text, and digests of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from tidemill_gateway.schemas import canonical

Raw = Mapping[str, Any]

# Parts of a message that are text, with the key that holds it.
TEXT_PARTS = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
    "reasoning_text": "text",
    "summary_text": "text",
}


def turn_digest(items: Sequence[Raw]) -> bytes:
    """16 bytes that name the content of a model turn's Responses items.

    Ids, call ids, statuses, annotations and the order of JSON keys do not count.
    """
    return blake2b(canonical([_content(item) for item in items]).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def turn_digests(items: Sequence[Raw]) -> tuple[bytes, ...]:
    """Digests under which an emitted turn is to be found again: as it is, and without its reasoning, which clients may drop."""
    spoken = [item for item in items if item_type(item) != "reasoning"]
    if not spoken or len(spoken) == len(items):
        return (turn_digest(items),)
    return turn_digest(items), turn_digest(spoken)


def _content(item: Raw) -> list[Any]:
    kind = item_type(item)
    if kind == "message":
        return [kind, _joined(item.get("content"))]
    if kind == "reasoning":
        return [kind, reasoning_text(item)]
    body = item.get("arguments", item.get("input", item.get("action")))
    return [kind, item.get("namespace") or "", item.get("name") or "", json_value(body) if kind != "custom_tool_call" else body]


def json_value(text: Any) -> Any:
    """JSON text as its value, so that its layout does not count; other text as it is."""
    try:
        return json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return text


def _joined(content: Any) -> str:
    """Text of a message's content as far as it is text, for digests."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return lines(str(part.get(TEXT_PARTS.get(str(part.get("type")), ""), "")) for part in parts if isinstance(part, Mapping))


def lines(texts: Iterable[str]) -> str:
    """Texts on lines of their own: a break is added where one does not end with it."""
    joined = ""
    for text in texts:
        joined += f"\n{text}" if joined and not joined.endswith("\n") else text
    return joined


def reasoning_text(item: Raw) -> str:
    """Text of a reasoning item: its content, else its summary."""
    return _joined(item.get("content")) or _joined(item.get("summary"))


def item_type(item: Raw) -> str:
    """An item without a type is a message, as OpenAI's own SDK writes it."""
    return str(item.get("type") or "message")
