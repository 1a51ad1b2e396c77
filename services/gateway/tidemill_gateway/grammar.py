"""The llguidance grammar of a turn."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill_gateway.request import ChoiceMode, TextFormat
from tidemill_gateway.syntax import CallSyntax, ThinkingSyntax
from tidemill_gateway.tools import FlatTool


def turn_grammar(
    tools: Sequence[FlatTool],
    mode: ChoiceMode,
    *,
    parallel: bool,
    syntax: CallSyntax,
    thinking: ThinkingSyntax = ThinkingSyntax(),
    text_format: TextFormat = TextFormat(),
    string_limit: int | None = None,
) -> str:
    """Grammar in llguidance's Lark syntax; empty when the turn is free.

    ``tools`` are those that may be called (``ToolSet.select``). Under auto a turn is text that starts no call, or text and then
    calls that fit a tool's schema; under required it is at least one such call, after thinking where the family thinks.
    ``text_format`` binds the text. ``string_limit`` bounds strings that their schema leaves unbounded, in characters: for models
    too small to end them.
    """
    raise NotImplementedError


def check_grammar(grammar: str) -> str:
    """What is wrong with a grammar, in llguidance's words; empty when nothing is."""
    raise NotImplementedError
