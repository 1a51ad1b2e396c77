"""Generated tokens, read as items: thinking, text and tool calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tidemill_common.vocabulary import Vocabulary
from tidemill_gateway.syntax import CallSyntax, ThinkingSyntax
from tidemill_gateway.tools import FlatTool


class ItemKind(StrEnum):
    """What an output item is."""

    REASONING = "reasoning"
    MESSAGE = "message"
    CALL = "call"


@dataclass(frozen=True, slots=True)
class ItemBegun:
    """An item starts. ``tool`` is set for a call."""

    kind: ItemKind
    tool: FlatTool | None = None


@dataclass(frozen=True, slots=True)
class ItemDelta:
    """More text of the item that is open: message or reasoning text, or a call's JSON arguments. Never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ItemEnded:
    """The open item is whole.

    Attributes:
        kind: what it is.
        text: all its text; of a call, the JSON arguments as generated.
        tool: the tool called.
        complete: False when generation was cut inside it.
        tokens: first token and the one after the last, counted from the turn's start; a token over a border belongs to both.
    """

    kind: ItemKind
    text: str
    tool: FlatTool | None = None
    complete: bool = True
    tokens: tuple[int, int] = (0, 0)


ParseEvent = ItemBegun | ItemDelta | ItemEnded


class OutputParser:
    """Reads a turn's tokens as they come. The events do not depend on how the ids are cut into pushes, but for the cuts of deltas.

    ``tools`` are the callable ones; without any, everything is text. With ``constrained`` (a grammar or forced tokens vouch for
    well-formed calls) arguments are given as they come; else a call is given once it is whole, and text that looks like a call
    but is none is message text.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        end_token_ids: Iterable[int],
        *,
        syntax: CallSyntax,
        thinking: ThinkingSyntax = ThinkingSyntax(),
        tools: Sequence[FlatTool] = (),
        constrained: bool = True,
    ) -> None:
        raise NotImplementedError

    def push(self, ids: Iterable[int]) -> list[ParseEvent]:
        """Events that ``ids`` make certain."""
        raise NotImplementedError

    def finish(self, *, complete: bool = True) -> list[ParseEvent]:
        """Events left at the end; ``complete`` is False when a limit or a cancel cut the turn."""
        raise NotImplementedError

    @property
    def token_ids(self) -> list[int]:
        """Every id pushed, end tokens included."""
        raise NotImplementedError

    @property
    def reasoning_tokens(self) -> int:
        """Tokens that were thinking."""
        raise NotImplementedError
