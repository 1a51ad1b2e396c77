"""Elements of a conversation, as the renderers read them. Item ids never come this far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["system", "developer", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. ``parameters`` is its JSON schema as text."""

    name: str
    description: str = ""
    parameters: str = "{}"


@dataclass(frozen=True, slots=True)
class Message:
    """Text by a role."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call given as text. ``arguments`` is what the model wrote, JSON by intention."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool returned."""

    output: str


@dataclass(frozen=True, slots=True)
class ToolList:
    """Tools added in mid-conversation."""

    tools: tuple[Tool, ...]


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Thinking given as text."""

    text: str


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """A whole generated turn as the ids that were sampled."""

    ids: tuple[int, ...]


Item = Message | ToolCall | ToolOutput | ToolList | Reasoning | ModelOutput


def readable_text(items: tuple[Item, ...]) -> str:
    """What a safety check reads of ``items``: text of users, developers and tools, joined by newlines."""
    texts = []
    for item in items:
        match item:
            case Message(role, text) if role != "assistant":
                texts.append(text)
            case ToolOutput(output):
                texts.append(output)
    return "\n".join(texts)
