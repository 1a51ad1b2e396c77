"""What a turn tells while it runs: the client's events to the agent, and the agent's to whoever watches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemill_harness.items import Item, ToolCall


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one turn or of several.

    Attributes:
        input: tokens of the prompt.
        cached: those of them that were not computed again.
        output: tokens generated.
    """

    input: int = 0
    cached: int = 0
    output: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.input + other.input, self.cached + other.cached, self.output + other.output)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Text of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ItemDone:
    """An output item is complete; a call may run at once."""

    item: Item


@dataclass(frozen=True, slots=True)
class Resent:
    """The turn starts anew with the whole conversation; text seen so far is void."""

    why: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """The server asked to come back later; text seen so far is void."""

    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class TurnDone:
    """A turn ended.

    Attributes:
        response_id: the server's id; empty when the connection broke after a complete call.
        usage: tokens of the turn.
        ttft: seconds from the send to the first event that carried a generated token; None if there was none.
        seconds: seconds from the send to the end.
        incomplete: why the output was cut (max_output_tokens, content_filter), or empty.
        hops: what each service spent, if the client asked for it.
    """

    response_id: str
    usage: Usage
    ttft: float | None
    seconds: float
    incomplete: str = ""
    hops: tuple[dict[str, Any], ...] = ()


TurnEvent = TextDelta | ReasoningDelta | ItemDone | Resent | Waiting | TurnDone


@dataclass(frozen=True, slots=True)
class ItemsAdded:
    """Input items entered the history."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A model turn begins. ``forced`` says that a script gives its output."""

    step: int
    tool_choice: str
    forced: bool = False


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A call runs."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A call ended after ``seconds`` with ``output``."""

    call: ToolCall
    output: str
    seconds: float


@dataclass(frozen=True, slots=True)
class StepFinished:
    """A model turn ended."""

    step: int
    turn: TurnDone


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that the user should know."""

    text: str


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """The task ended. ``error`` is empty when it was answered."""

    answer: str
    steps: int
    usage: Usage
    seconds: float
    error: str = ""
    incomplete: str = ""


AgentEvent = TurnEvent | ItemsAdded | StepStarted | ToolStarted | ToolFinished | StepFinished | Notice | TaskFinished
