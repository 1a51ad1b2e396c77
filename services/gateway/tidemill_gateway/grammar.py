"""The llguidance grammar of a turn.

Syntax: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md. A ``[lazy]`` terminal ends at its first match, which
is how free text turns into a call at the begin marker; ``&`` and ``~`` in terminals are intersection and complement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from tidemill_gateway import schemas
from tidemill_gateway.request import ChoiceMode, FormatKind, TextFormat
from tidemill_gateway.syntax import CallSyntax, ThinkingSyntax
from tidemill_gateway.tools import FlatTool

_NO_THINKING = ThinkingSyntax()
_FREE_TEXT = TextFormat()


def turn_grammar(
    tools: Sequence[FlatTool],
    mode: ChoiceMode,
    *,
    parallel: bool,
    syntax: CallSyntax,
    thinking: ThinkingSyntax = _NO_THINKING,
    text_format: TextFormat = _FREE_TEXT,
    string_limit: int | None = None,
) -> str:
    """Grammar in llguidance's Lark syntax; empty when the turn is free.

    ``tools`` are those that may be called (``ToolSet.select``). Under auto a turn is text that starts no call, or text and then
    calls that fit a tool's schema; under required it is at least one such call, after thinking where the family thinks.
    ``text_format`` binds the text. ``string_limit`` bounds the strings of a call that their schema leaves unbounded, in
    characters: for models too small to end them.
    """
    if not tools or mode is ChoiceMode.NONE:
        return "" if text_format.kind is FormatKind.TEXT else _joined([_start("format", thinking), *_format(text_format)])
    lines = [*_calls(tools, parallel and bool(syntax.begin), syntax, string_limit)]
    if mode is ChoiceMode.REQUIRED:
        return _joined([_start("calls", thinking), *lines])
    if text_format.kind is not FormatKind.TEXT:
        return _joined([_start("format | calls", thinking), *_format(text_format), *lines])
    return _joined([*_text_or_calls(syntax, thinking), *lines])


def check_grammar(grammar: str) -> str:
    """What is wrong with a grammar, in llguidance's words; empty when nothing is."""
    return schemas.grammar_problem(grammar)


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(["%llguidance {}", *lines, ""])


def _start(body: str, thinking: ThinkingSyntax) -> str:
    """The start rule of ``body``, after thinking where the family thinks."""
    if not thinking.begin:
        return f"start: {body}"
    return f"start: (thinking BLANK?)? ({body})\n{_thinking(thinking)}"


def _thinking(thinking: ThinkingSyntax) -> str:
    return f"thinking[lazy]: /{_regex(thinking.begin)}(?s:.*){_regex(thinking.end)}/\nBLANK: /\\s+/"


def _calls(tools: Sequence[FlatTool], parallel: bool, syntax: CallSyntax, limit: int | None) -> list[str]:
    """``calls`` is a begin marker and a body, then more; ``body`` is what follows a begin marker."""
    if not syntax.begin:
        rules = [f"call_{n}: {_object_call(tool, syntax, limit)}" for n, tool in enumerate(tools)]
        return [f"calls: {' | '.join(f'call_{n}' for n in range(len(tools)))}", *rules]
    rest = '("\\n" call)*' if parallel else ""
    bodies = " | ".join(f"{_quoted(_head(tool, syntax))} arguments_{n}" for n, tool in enumerate(tools))
    rules = [f"arguments_{n}: {_arguments(tool, limit)}" for n, tool in enumerate(tools)]
    call = f"call: {_quoted(syntax.trigger)} body"
    return [f"calls: call {rest}", call, f"more: {rest}", f"body: ({bodies}) {_quoted('}' + syntax.end)}", *rules]


def _arguments(tool: FlatTool, limit: int | None) -> str:
    return schemas.json_rule(json.loads(tool.parameters_json), strict=tool.strict, string_limit=limit)


def _object_call(tool: FlatTool, syntax: CallSyntax, limit: int | None) -> str:
    """A call without markers, as one JSON rule: llguidance joins those, so that calls and other JSON may begin alike."""
    arguments = schemas.moved(json.loads(tool.parameters_json), f"/properties/{syntax.arguments_key}")
    keys = [syntax.name_key, syntax.arguments_key]
    properties = {syntax.name_key: {"const": tool.name}, syntax.arguments_key: arguments}
    return schemas.json_rule(
        {"type": "object", "properties": properties, "required": keys}, strict=tool.strict, string_limit=limit
    )


def _head(tool: FlatTool, syntax: CallSyntax) -> str:
    """What stands between the trigger and a call's arguments."""
    space = syntax.begin[len(syntax.begin.rstrip()) :]
    return f'{space}{{"{syntax.name_key}": "{tool.name}", "{syntax.arguments_key}": '


def _text_or_calls(syntax: CallSyntax, thinking: ThinkingSyntax) -> list[str]:
    """Text without a trigger, or text up to the first one and calls; a family without one may not start text like an object."""
    if not syntax.begin:
        return [_start("TEXT | calls", thinking), "TEXT: /\\s*([^\\s{](?s:.*))?/"]
    trigger = _regex(syntax.trigger)
    unlike = f" & ~/{_regex(thinking.begin)}(?s:.*)/" if thinking.begin else ""
    return [
        _start("TEXT | opening body more", thinking),
        "opening[lazy]: OPENING",
        f"OPENING: /(?s:.*){trigger}/{unlike}",
        f"TEXT: /(?s:.*)/ & ~/(?s:.*){trigger}(?s:.*)/{unlike}",
    ]


def _format(text_format: TextFormat) -> list[str]:
    schema = text_format.schema if text_format.schema is not None else {"type": "object"}
    return [f"format: {schemas.json_rule(schema, strict=text_format.strict)}"]


def _quoted(text: str) -> str:
    return json.dumps(text) if text else ""


def _regex(text: str) -> str:
    """A pattern of exactly ``text`` for Lark's ``/.../``."""
    return re.escape(text).replace("/", "\\/").replace("\n", "n")
