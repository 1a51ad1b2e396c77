"""How a model family writes tool calls and thinking into its text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """A tool call is ``begin``, a JSON object, ``end``.

    Attributes:
        begin: text before the object; empty where a turn that is a JSON object is a call.
        end: text after it.
        name_key: key of the call's name.
        arguments_key: key of the call's arguments object.
    """

    begin: str
    end: str
    name_key: str = "name"
    arguments_key: str = "arguments"

    @property
    def trigger(self) -> str:
        """The part of ``begin`` that no free text may contain."""
        return self.begin.strip()


@dataclass(frozen=True, slots=True)
class ThinkingSyntax:
    """Text that opens and closes thinking; both empty where the family has none."""

    begin: str = ""
    end: str = ""
