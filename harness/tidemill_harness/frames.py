"""Frames of the Responses protocol: what a request looks like, and what each frame that comes back means. Does no I/O.

Source: the wire of openai-python and the Codex CLI; unknown frame types are ignored, as those clients do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill_common.errors import CATALOGUE, Reason, TidemillError
from tidemill_harness.events import ItemDone, ReasoningDelta, TextDelta, Usage
from tidemill_harness.items import Item

_BY_CODE = {entry.code: reason for reason, entry in CATALOGUE.items()} | {
    "server_is_overloaded": Reason.OVERLOADED,
    "slow_down": Reason.OVERLOADED,
}
_BY_STATUS = {
    401: Reason.INVALID_API_KEY,
    403: Reason.INVALID_API_KEY,
    404: Reason.NOT_FOUND,
    413: Reason.REQUEST_TOO_LARGE,
    429: Reason.OVERLOADED,
    502: Reason.UNAVAILABLE,
    503: Reason.UNAVAILABLE,
    504: Reason.DEADLINE_EXCEEDED,
}
# A stack restarts a dead child within seconds, so these pass.
PASSING = frozenset(
    {Reason.OVERLOADED, Reason.UNAVAILABLE, Reason.NO_WORKERS, Reason.WORKER_LOST, Reason.WORKER_UNKNOWN, Reason.PREFIX_UNKNOWN}
)
_TEXT = frozenset({"response.output_text.delta", "response.refusal.delta"})
_REASONING = frozenset({"response.reasoning_text.delta", "response.reasoning_summary_text.delta"})
_ARGUMENTS = frozenset({"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"})
_AGAIN = re.compile(r"try again in (\d+(?:\.\d+)?) ?(ms|s)", re.IGNORECASE)


class Lost(Exception):
    """The server does not hold the conversation any more, or the socket broke: the whole must be sent.

    Attributes:
        why: a clause for the user.
        reconnect: whether a new socket is needed.
    """

    def __init__(self, why: str, reconnect: bool) -> None:
        super().__init__(why)
        self.why = why
        self.reconnect = reconnect


class Busy(Exception):
    """The server can't serve the turn now. ``seconds`` is how long it asks to wait, None if it does not say."""

    def __init__(self, error: TidemillError, seconds: float | None) -> None:
        super().__init__(error.message)
        self.error = error
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Ended:
    """The response is complete, or cut for the reason that ``incomplete`` gives."""

    response_id: str
    usage: Usage
    incomplete: str


@dataclass(frozen=True, slots=True)
class Hops:
    """What each service spent on the turn."""

    hops: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Request:
    """What is the same in every turn of a conversation, so that the server's prefix stays valid.

    Attributes:
        model: alias of the model.
        tools: tool specs, in constant order.
        cache_key: affinity key, constant for the conversation.
        parallel: whether a turn may have several calls.
    """

    model: str
    tools: Sequence[Item]
    cache_key: str
    parallel: bool = True

    def frame(
        self, items: Sequence[Item], previous: str | None, tool_choice: str, forced: Sequence[Item] | None = None
    ) -> dict[str, Any]:
        """A ``response.create`` with ``items``, the new ones after ``previous``. ``forced`` are items that a script gives."""
        frame: dict[str, Any] = {"type": "response.create", "model": self.model, "stream": True}
        if previous:
            frame["previous_response_id"] = previous
        frame |= {"input": list(items), "tools": list(self.tools), "tool_choice": tool_choice}
        frame |= {"parallel_tool_calls": self.parallel, "store": False, "prompt_cache_key": self.cache_key}
        if forced is not None:
            frame["tidemill_forced_output"] = list(forced)
        return frame


Meaning = TextDelta | ReasoningDelta | ItemDone | Hops | Ended | None


def read(frame: Mapping[str, Any]) -> Meaning:
    """What a frame means. Raises Lost, Busy or TidemillError when it tells of a failure."""
    kind = frame.get("type")
    if kind in _TEXT:
        return TextDelta(str(frame.get("delta", "")))
    if kind in _REASONING:
        return ReasoningDelta(str(frame.get("delta", "")))
    if kind == "response.output_item.done":
        return ItemDone(dict(frame["item"]))
    if kind == "response.metadata":
        return Hops(tuple(frame.get("hops") or ()))
    response: Mapping[str, Any] = frame.get("response") or {}
    if kind in ("response.completed", "response.incomplete"):
        why = (response.get("incomplete_details") or {}).get("reason") or "unknown" if kind == "response.incomplete" else ""
        return Ended(str(response.get("id") or ""), _usage(response.get("usage") or {}), why)
    if kind == "response.failed":
        raise failure(response.get("error") or {}, None)
    if kind == "error":
        raise failure(frame.get("error") or frame, frame.get("status") or frame.get("status_code"))
    return None


def carries_token(frame: Mapping[str, Any]) -> bool:
    """Whether a frame carries a generated token of any kind: it stops the TTFT clock."""
    kind = frame.get("type")
    return kind == "response.output_item.done" or (bool(frame.get("delta")) and kind in _TEXT | _REASONING | _ARGUMENTS)


def failure(error: Mapping[str, Any], status: int | None) -> Exception:
    """The exception that an error object stands for: Lost, Busy or TidemillError."""
    code, text = str(error.get("code") or ""), str(error.get("message") or "the server gave no message")
    reason = _BY_CODE.get(code) or _BY_STATUS.get(status or 0, Reason.INTERNAL)
    if reason is Reason.PREVIOUS_RESPONSE_NOT_FOUND:
        return Lost("the server no longer holds the previous response", reconnect=False)
    if reason is Reason.CONNECTION_LIMIT:
        return Lost("the server asked for a new connection", reconnect=True)
    wrapped = TidemillError(reason, _without_advice(text, reason), error.get("param"))
    return Busy(wrapped, _seconds(text)) if reason in PASSING else wrapped


def _without_advice(text: str, reason: Reason) -> str:
    """A gateway's message may end with the advice that a sentence adds again."""
    return text.removesuffix(CATALOGUE[reason].advice).strip() or text


def _seconds(text: str) -> float | None:
    found = _AGAIN.search(text)
    return float(found[1]) / (1000 if found[2].lower() == "ms" else 1) if found else None


def _usage(usage: Mapping[str, Any]) -> Usage:
    cached = (usage.get("input_tokens_details") or {}).get("cached_tokens", 0)
    return Usage(int(usage.get("input_tokens", 0)), int(cached or 0), int(usage.get("output_tokens", 0)))
