"""Responses input items as the conversation elements that the tokenizer renders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill_gateway.tools import FlatTool, ToolSet


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


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """Consecutive items of one model turn, resent by a client.

    Attributes:
        items: the turn as text, for a turn that nobody remembers the ids of.
        digest: what ``turn_digest`` gives for it; the key under which its sampled ids may be found.
    """

    items: tuple[Message | ToolCall | Reasoning, ...]
    digest: bytes


Entry = Message | ToolOutput | ToolList | ModelTurn


@dataclass(frozen=True, slots=True)
class CallLedger:
    """Call ids of a conversation: those without an output yet, and the latest ones seen (bounded)."""

    open: tuple[str, ...] = ()
    known: tuple[str, ...] = ()

    def called(self, call_ids: Sequence[str]) -> CallLedger:
        """The ledger after a model turn that made these calls."""
        raise NotImplementedError


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
    raw: str | Sequence[Mapping[str, Any]],
    tools: ToolSet,
    *,
    model: str,
    calls: CallLedger = CallLedger(),
    closing: bool = True,
    param: str = "input",
) -> ParsedInput:
    """Read ``input``: a user's text, or items that follow a conversation with ``tools`` and ``calls``.

    Item ids, statuses and annotations are ignored. With ``closing`` (a turn is generated next) every open call that has no
    output among the items gets "aborted"; an output of an unknown call is refused.

    Raises TidemillError: INVALID_REQUEST naming the item, UNSUPPORTED_INPUT for images, audio and files, INVALID_TOOLS.
    """
    raise NotImplementedError


def parse_output(
    raw: Sequence[Mapping[str, Any]], tools: ToolSet, *, model: str, param: str
) -> tuple[Message | ToolCall | Reasoning, ...]:
    """Read output items (forced output, scripts): assistant messages, reasoning and calls of one turn.

    Raises TidemillError(INVALID_REQUEST) for other items.
    """
    raise NotImplementedError


def turn_digest(items: Sequence[Mapping[str, Any]]) -> bytes:
    """16 bytes that name the content of a model turn's Responses items: ids, statuses and the order of JSON keys do not count."""
    raise NotImplementedError


def turn_digests(items: Sequence[Mapping[str, Any]]) -> tuple[bytes, ...]:
    """Digests under which an emitted turn is to be found again: as it is, and without its reasoning, which clients may drop."""
    raise NotImplementedError
