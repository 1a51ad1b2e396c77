"""Responses tools as flat functions, and the way back from a flat name to the tool that the client knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tidemill_gateway.request import ToolChoice


class ToolKind(StrEnum):
    """How a call of the tool is given to the client."""

    FUNCTION = "function"
    CUSTOM = "custom"
    TOOL_SEARCH = "tool_search"


@dataclass(frozen=True, slots=True)
class Address:
    """What a client calls a tool: its kind, its namespace ("" for none) and its name there."""

    kind: ToolKind
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class FlatTool:
    """A tool as the model sees it.

    Attributes:
        name: flat name, of letters, digits, ``_`` and ``-``, at most 64 characters.
        description: what it does.
        parameters_json: JSON schema of its arguments, canonical JSON.
        address: what the client calls it.
        strict: whether every keyword of the schema must be enforced.
    """

    name: str
    description: str
    parameters_json: str
    address: Address
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The tools of a conversation, in order, each with a name of its own. Immutable; ``extended`` appends."""

    tools: tuple[FlatTool, ...] = ()

    @classmethod
    def parse(cls, raw: Sequence[Mapping[str, Any]], param: str = "tools") -> ToolSet:
        """Tools of a request. Hosted tools are left out.

        Raises TidemillError(INVALID_TOOLS) that names the tool and what is wrong with it.
        """
        raise NotImplementedError

    def extended(self, raw: Sequence[Mapping[str, Any]], param: str) -> tuple[ToolSet, tuple[FlatTool, ...]]:
        """This set with the tools of ``raw`` after it, and those tools. A tool known already keeps its name and takes the new schema."""
        raise NotImplementedError

    def by_name(self, flat: str) -> FlatTool | None:
        """The tool of that flat name."""
        raise NotImplementedError

    def flat_name(self, address: Address) -> str:
        """Flat name of ``address``; for a tool that is not in the set, the name it would have alone."""
        raise NotImplementedError

    def select(self, choice: ToolChoice) -> tuple[FlatTool, ...]:
        """Tools that the model may call under ``choice``: none for mode none.

        Raises TidemillError(INVALID_REQUEST, param tool_choice) for a tool that is not there, or required without tools.
        """
        raise NotImplementedError

    def digest(self) -> bytes:
        """16 bytes that name the set's rendering: equal sets render equally."""
        raise NotImplementedError
