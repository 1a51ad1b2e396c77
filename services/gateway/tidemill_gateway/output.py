"""Generated tokens, read as items: thinking, text and tool calls."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto

from tidemill_common.vocabulary import Vocabulary
from tidemill_gateway.calls import CallScanner, Scan
from tidemill_gateway.detokenizer import Detokenizer
from tidemill_gateway.syntax import CallSyntax, ThinkingSyntax
from tidemill_gateway.tools import FlatTool

_NO_THINKING = ThinkingSyntax()


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


class _State(Enum):
    BETWEEN = auto()  # no item is open; white space waits
    THINKING = auto()
    TEXT = auto()
    CALL = auto()  # a begin marker was read; a message may still be open


@dataclass
class _OpenItem:
    kind: ItemKind
    start: int
    tool: FlatTool | None = None
    parts: list[str] = field(default_factory=list)


@dataclass
class _Candidate:
    """Text that may be a call: ``lead`` characters of white space and marker stand before what ``scanner`` reads."""

    scanner: CallScanner
    space: int
    lead: int
    given: int = 0


class TokenSpans:
    """Which tokens the characters of a turn came from."""

    def __init__(self) -> None:
        self._ends: list[int] = []

    def add(self, length: int) -> None:
        """One more token, which made ``length`` characters certain."""
        self._ends.append((self._ends[-1] if self._ends else 0) + length)

    def lengthen(self, length: int) -> None:
        """The last token made ``length`` more characters certain."""
        if self._ends:
            self._ends[-1] += length

    def span(self, start: int, end: int) -> tuple[int, int]:
        """First token and the one after the last of the characters from ``start`` to before ``end``.

        Tokens that are bytes of an unfinished character belong to what follows them.
        """
        first = bisect_left(self._ends, start) if start else 0
        if start and self._ends[first] == start:
            first += 1
        return first, bisect_left(self._ends, end) + 1


class OutputParser:
    """Reads a turn's tokens as they come. How the ids are cut into pushes changes only how text is cut into deltas.

    ``tools`` are the callable ones; without any, everything is text. With ``constrained`` (a grammar or forced tokens vouch for
    well-formed calls) arguments are given as they come; else a call is given once it is whole, and text that looks like a call
    but is none is message text. White space between items belongs to none of them.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        end_token_ids: Iterable[int],
        *,
        syntax: CallSyntax,
        thinking: ThinkingSyntax = _NO_THINKING,
        tools: Sequence[FlatTool] = (),
        constrained: bool = True,
    ) -> None:
        self._detokenizer = Detokenizer(vocabulary, end_token_ids)
        self._syntax = syntax
        self._thinking = thinking
        self._tools = {tool.name: tool for tool in tools}
        self._constrained = constrained
        self._ids: list[int] = []
        self._spans = TokenSpans()
        self._buffer = ""
        self._at = 0  # characters before the buffer
        self._fresh = True  # nothing but white space came yet
        self._state = _State.BETWEEN
        self._item: _OpenItem | None = None
        self._call: _Candidate | None = None
        self._reasoning_tokens = 0
        self._events: list[ParseEvent] = []

    @property
    def token_ids(self) -> list[int]:
        """Every id pushed, end tokens included."""
        return list(self._ids)

    @property
    def reasoning_tokens(self) -> int:
        """Tokens that were thinking."""
        return self._reasoning_tokens

    def push(self, ids: Iterable[int]) -> list[ParseEvent]:
        """Events that ``ids`` make certain."""
        for token in ids:
            self._ids.append(token)
            text = self._detokenizer.push(token)
            self._spans.add(len(text))
            self._read(text)
        return self._taken()

    def finish(self, *, complete: bool = True) -> list[ParseEvent]:
        """Events left at the end; ``complete`` is False when a limit or a cancel cut the turn."""
        tail = self._detokenizer.finish()
        self._spans.lengthen(len(tail))
        self._read(tail)
        while self._call is not None:
            self._call.scanner.finish()
            self._advance()
        self._flush()
        self._end_item(complete)
        return self._taken()

    def _taken(self) -> list[ParseEvent]:
        """Events since the last call, neighbouring deltas joined."""
        joined: list[ParseEvent] = []
        for event in self._events:
            if isinstance(event, ItemDelta) and joined and isinstance(joined[-1], ItemDelta):
                joined[-1] = ItemDelta(joined[-1].text + event.text)
            else:
                joined.append(event)
        self._events = []
        return joined

    def _read(self, text: str) -> None:
        self._buffer += text
        if self._call is not None:
            self._call.scanner.feed(text)
        self._advance()

    def _advance(self) -> None:
        steps = {
            _State.BETWEEN: self._step_between,
            _State.THINKING: self._step_thinking,
            _State.TEXT: self._step_text,
            _State.CALL: self._step_call,
        }
        while steps[self._state]():
            pass

    def _step_between(self) -> bool:
        """Find out what comes; False where more text must tell."""
        lead = self._buffer.lstrip()
        space = len(self._buffer) - len(lead)
        if self._fresh and self._thinking.begin:
            if lead.startswith(self._thinking.begin):
                return self._begin_thinking(space)
            if self._thinking.begin.startswith(lead):
                return False
        if self._tools:
            trigger = self._syntax.trigger or "{"
            if lead.startswith(trigger):
                return self._begin_candidate(space)
            if trigger.startswith(lead):
                return False
        if not lead and not (self._fresh and self._buffer and not self._tools):
            return False
        if not self._fresh:
            self._drop(space)
        self._state = _State.TEXT
        return True

    def _begin_thinking(self, space: int) -> bool:
        self._drop(space + len(self._thinking.begin))
        self._state = _State.THINKING
        return True

    def _step_thinking(self) -> bool:
        if self._item is None:
            self._drop(len(self._buffer) - len(self._buffer.lstrip()))
        found = self._buffer.find(self._thinking.end)
        if found < 0:
            self._emit(ItemKind.REASONING, _certain(self._buffer, self._thinking.end))
            return False
        self._emit(ItemKind.REASONING, len(self._buffer[:found].rstrip()))
        self._end_item(complete=True)
        self._drop(self._buffer.index(self._thinking.end) + len(self._thinking.end))
        self._close_thinking()
        return True

    def _close_thinking(self) -> None:
        """Everything so far was thinking."""
        self._reasoning_tokens = self._spans.span(0, self._at)[1] if self._at else 0
        self._fresh = False
        self._state = _State.BETWEEN

    def _step_text(self) -> bool:
        trigger = self._syntax.trigger if self._tools else ""
        if not trigger:
            self._emit(ItemKind.MESSAGE, len(self._buffer))
            return False
        found = self._buffer.find(trigger)
        if found < 0:
            self._emit(ItemKind.MESSAGE, _certain(self._buffer, trigger))
            return False
        before = len(self._buffer[:found].rstrip())
        self._emit(ItemKind.MESSAGE, before)
        return self._begin_candidate(found - before)

    def _begin_candidate(self, space: int) -> bool:
        """The buffer starts with white space and a begin marker."""
        lead = space + len(self._syntax.trigger)
        self._call = _Candidate(CallScanner(self._syntax, self._tools), space, lead)
        self._call.scanner.feed(self._buffer[lead:])
        self._state = _State.CALL
        return True

    def _step_call(self) -> bool:
        call = self._call
        if call is None:
            return False
        if call.scanner.state is Scan.WHOLE:
            self._give_call(call)
            return self._end_call(call.lead + call.scanner.end, complete=True)
        if call.scanner.state is Scan.READING:
            if self._constrained and call.scanner.tool is not None:
                self._give_call(call)
            return False
        if self._item is not None and self._item.kind is ItemKind.CALL:
            return self._end_call(call.lead + len(call.scanner.text), complete=False)
        self._call, self._state = None, _State.TEXT
        self._emit(ItemKind.MESSAGE, call.lead)
        return True

    def _give_call(self, call: _Candidate) -> None:
        """Begin the call's item if it is not open, and give the arguments that are certain."""
        if self._item is None or self._item.kind is not ItemKind.CALL:
            self._end_item(complete=True)
            self._begin_item(ItemKind.CALL, self._at + call.space, call.scanner.tool)
        self._append(call.scanner.arguments[call.given :])
        call.given = len(call.scanner.arguments)

    def _end_call(self, length: int, *, complete: bool) -> bool:
        self._drop(length)
        self._end_item(complete)
        self._call, self._state = None, _State.BETWEEN
        return True

    def _flush(self) -> None:
        """At the end, what waited for more text is text; white space that stands alone is nothing."""
        if self._state is _State.THINKING:
            self._emit(ItemKind.REASONING, len(self._buffer.rstrip()))
            self._drop(len(self._buffer))
            self._close_thinking()
        elif self._state is _State.TEXT or self._buffer.strip():
            if not self._fresh and self._item is None:
                self._drop(len(self._buffer) - len(self._buffer.lstrip()))
            self._emit(ItemKind.MESSAGE, len(self._buffer))

    def _emit(self, kind: ItemKind, length: int) -> None:
        """Give the buffer's first ``length`` characters as text of an item of ``kind``."""
        if not length:
            return
        if self._item is None:
            self._begin_item(kind, self._at)
        self._append(self._buffer[:length])
        self._drop(length)

    def _append(self, text: str) -> None:
        if text and self._item is not None:
            self._item.parts.append(text)
            self._events.append(ItemDelta(text))

    def _begin_item(self, kind: ItemKind, start: int, tool: FlatTool | None = None) -> None:
        self._fresh = False
        self._item = _OpenItem(kind, start, tool)
        self._events.append(ItemBegun(kind, tool))

    def _end_item(self, complete: bool) -> None:
        item, self._item = self._item, None
        if item is None:
            return
        tokens = self._spans.span(item.start, self._at)
        self._events.append(ItemEnded(item.kind, "".join(item.parts), item.tool, complete, tokens))

    def _drop(self, length: int) -> None:
        self._buffer = self._buffer[length:]
        self._at += length


def _certain(text: str, marker: str) -> int:
    """How many characters of ``text`` can be given: not what may begin the marker, nor white space before that."""
    sizes = range(min(len(marker) - 1, len(text)), 0, -1)
    held = next((size for size in sizes if text.endswith(marker[:size])), 0)
    return len(text[: len(text) - held].rstrip())
