"""What the template families share: a fold over items that only appends.

Each item's ids depend on the state before it and on itself alone, so rendering a conversation in parts gives the ids of
rendering it whole. An assistant header and what follows it are always encoded apart, as they are when a model generates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tidemill_common.errors import Reason, TidemillError
from tidemill_tokenizer.items import Item, Message, ModelOutput, Reasoning, Tool, ToolCall, ToolList, ToolOutput
from tidemill_tokenizer.state import Part, Phase, State
from tidemill_tokenizer.writer import Writer


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """How a call stands in generated text: begin, a JSON object with the two keys, end."""

    begin: str
    end: str
    name_key: str
    arguments_key: str


@dataclass(frozen=True, slots=True)
class Options:
    """What models of one family differ in, learned from the model's own template.

    Attributes:
        default_system: system text where a conversation brings none; None means no system message then.
        preamble: text before every system text.
        thinking: whether the model thinks in ``<think>`` tags.
    """

    default_system: str | None = None
    preamble: str = ""
    thinking: bool = False


class Family(ABC):
    """Renderer of one template family.

    Attributes:
        name: chatml, llama3 or qwen.
        end_of_turn: special token that ends a turn.
        turn_closers: special tokens after which a sampled turn needs no end-of-turn token.
        after_turn: text between a turn's end and the next header.
        call_syntax: how calls are written.
        calls_share_turn: whether a turn may hold text and several calls.
    """

    name: ClassVar[str]
    end_of_turn: ClassVar[str]
    turn_closers: ClassVar[frozenset[str]]
    after_turn: ClassVar[str]
    call_syntax: ClassVar[CallSyntax]
    calls_share_turn: ClassVar[bool] = True

    def __init__(self, options: Options, specials: Mapping[str, int]) -> None:
        """``specials`` are the model's added tokens. Raises TidemillError(CONFIG) when the family's own are not among them."""
        if missing := sorted(self.markers() - specials.keys()):
            raise TidemillError(Reason.CONFIG, f"the model's tokenizer has no {missing}, which family {self.name!r} needs")
        self.options = options
        self.specials = specials
        self._closers = frozenset(specials[text] for text in self.turn_closers if text in specials)

    @classmethod
    @abstractmethod
    def markers(cls) -> frozenset[str]:
        """Special tokens that the family cannot do without."""

    @classmethod
    @abstractmethod
    def header_text(cls, role: str) -> str:
        """Header of a turn."""

    @abstractmethod
    def preface(self, writer: Writer, system: str | None, tools: Sequence[Tool]) -> None:
        """Write what stands before the first turn. ``system`` is None where neither caller nor model has one."""

    @abstractmethod
    def added_tools(self, writer: Writer, tools: Sequence[Tool]) -> None:
        """Write the text of a system message that adds tools."""

    @abstractmethod
    def call(self, writer: Writer, call: ToolCall) -> None:
        """Write one call."""

    @abstractmethod
    def output(self, writer: Writer, state: State, item: ToolOutput) -> State:
        """Write a tool's output; ``state`` is not settled."""

    def header(self, writer: Writer, role: str) -> None:
        """Write the header of a turn, as a piece of its own."""
        writer.glue(self.header_text(role))
        writer.flush()

    def clean(self, text: str) -> str:
        """Text of a message as the family's templates take it over."""
        return text

    def begin(self, writer: Writer, instructions: str, tools: Sequence[Tool], items: Sequence[Item]) -> Sequence[Item]:
        """Write a conversation's start; returns the items left, without a leading system message that it took up."""
        system: str | None = instructions or None
        match items:
            case [Message("system" | "developer", text), *rest] if system is None:
                system, items = text, rest
        self.preface(writer, self.options.default_system if system is None else system, tools)
        return items

    def add(self, writer: Writer, state: State, item: Item) -> State:
        """Write one item after ``state``."""
        after = self._add(writer, state, item)
        if after.phase in (Phase.TEXT, Phase.OUTPUTS):
            writer.hold_tail()
        else:
            writer.flush()
        return after

    def _add(self, writer: Writer, state: State, item: Item) -> State:
        match item:
            case Message("assistant", _) | ToolCall() | Reasoning():
                return self._assistant(writer, state, item)
            case Message(role, text):
                return self._whole(writer, state, "system" if role == "developer" else role, self.clean(text))
            case ToolOutput():
                return self.output(writer, state, item)
            case ToolList(tools):
                self.settle(writer, state)
                self.header(writer, "system")
                self.added_tools(writer, tools)
                return self._end(writer)
            case ModelOutput(ids):
                self._open(writer, state)
                writer.ids(ids)
                return state.to(Phase.ENDED if ids and ids[-1] in self._closers else Phase.SAMPLED)

    def open_turn(self, writer: Writer, state: State) -> State:
        """Write the header of an assistant turn; nothing when one stands open and empty."""
        self._open(writer, state)
        return state.to(Phase.HEADER)

    def settle(self, writer: Writer, state: State) -> State:
        """End whatever ``state`` has open. A header with nothing after it becomes an empty turn."""
        match state.phase:
            case Phase.HEADER | Phase.TEXT | Phase.SAMPLED | Phase.OUTPUTS:
                return self._end(writer)
            case Phase.ENDED:
                writer.glue(self.after_turn)
        return state.to(Phase.CLOSED)

    def turn(self, writer: Writer, items: Sequence[Item]) -> None:
        """Write the items of one assistant turn and its end, as the model would.

        Raises TidemillError(INVALID_REQUEST) for items that the family cannot write into one turn.
        """
        state = State(Phase.HEADER)
        for item in items:
            if isinstance(item, Reasoning) and not self.options.thinking:
                problem = "the model has no syntax for thinking, so reasoning cannot be written"
                raise TidemillError(Reason.INVALID_REQUEST, problem, "items")
            match item:
                case Message("assistant", _) | ToolCall() | Reasoning() if self._continues(state, part_of(item)):
                    state = self._assistant(writer, state, item)
                case _:
                    raise TidemillError(
                        Reason.INVALID_REQUEST,
                        f"family {self.name!r} cannot write a {type(item).__name__} into a turn after "
                        f"{state.part.name if state.part else 'its start'}; reasoning, a message and calls stand in this order",
                        "items",
                    )
        writer.glue(self.end_of_turn)

    def _assistant(self, writer: Writer, state: State, item: Message | ToolCall | Reasoning) -> State:
        if isinstance(item, Reasoning) and not self.options.thinking:
            return state  # a model without a syntax for thinking gets none to read
        part = part_of(item)
        if not self._continues(state, part):
            self._open(writer, state)
            state = state.to(Phase.HEADER)
        match item:
            case Reasoning(text):
                writer.glue("<think>\n")
                writer.text(text.strip("\n"))
                writer.glue("\n</think>\n\n")
            case Message(_, text):
                writer.text(self.clean(text))
                part = part if text else state.part  # so that no line break comes before a call that follows
            case ToolCall():
                if state.part not in (Part.NONE, Part.REASONING):
                    writer.glue("\n")
                self.call(writer, item)
        return state.to(Phase.TEXT, part)

    def _continues(self, state: State, part: Part) -> bool:
        if state.phase == Phase.HEADER:
            return True
        follows = part > state.part or (part == state.part == Part.CALL)
        return state.phase == Phase.TEXT and follows and (self.calls_share_turn or part != Part.CALL)

    def _open(self, writer: Writer, state: State) -> None:
        if state.phase != Phase.HEADER:
            self.settle(writer, state)
            self.header(writer, "assistant")

    def _whole(self, writer: Writer, state: State, role: str, text: str) -> State:
        self.settle(writer, state)
        self.header(writer, role)
        writer.text(text)
        return self._end(writer)

    def _end(self, writer: Writer) -> State:
        writer.glue(self.end_of_turn + self.after_turn)
        return State()


def part_of(item: Message | ToolCall | Reasoning) -> Part:
    """Which part of an assistant turn ``item`` is."""
    return {Reasoning: Part.REASONING, Message: Part.MESSAGE, ToolCall: Part.CALL}[type(item)]
