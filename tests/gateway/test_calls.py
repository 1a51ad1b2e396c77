from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_gateway.calls import CallScanner, Scan
from tidemill_gateway.syntax import CallSyntax
from tidemill_gateway.tools import ToolSet

HERMES = CallSyntax("<tool_call>\n", "\n</tool_call>")
BARE = CallSyntax("", "", "name", "parameters")
TOOLS = {tool.name: tool for tool in ToolSet.parse([{"type": "function", "name": name} for name in ("shell", "look")]).tools}

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=12)
arguments = st.dictionaries(st.text(max_size=4), scalars | st.lists(scalars, max_size=3), max_size=3)


def scan(text: str, *, step: int = 1, syntax: CallSyntax = HERMES) -> CallScanner:
    scanner = CallScanner(syntax, TOOLS)
    for start in range(0, len(text), step):
        scanner.feed(text[start : start + step])
    return scanner


@given(arguments, st.integers(1, 40), st.sampled_from([None, 1]), st.text(max_size=5))
def test_any_call_is_read_in_any_pieces(given_arguments: dict[str, Any], step: int, indent: int | None, after: str) -> None:
    body = json.dumps(given_arguments, indent=indent, ensure_ascii=False)
    call = f'\n{{"name": "shell", "arguments": {body}}}\n</tool_call>'
    scanner = scan(call + after, step=step)
    assert scanner.state is Scan.WHOLE
    assert scanner.arguments == body
    assert scanner.tool is TOOLS["shell"]
    assert scanner.text[: scanner.end] == call


def test_arguments_are_known_as_they_come() -> None:
    assert scan('\n{"name": "sh').tool is None
    part = scan('\n{"name": "shell", "arguments": {"command": "ls')
    assert (part.state, part.arguments) == (Scan.READING, '{"command": "ls')
    whole = scan('\n{"name": "shell", "arguments": {"command": "ls"}}')
    assert (whole.state, whole.arguments) == (Scan.READING, '{"command": "ls"}')


def test_keys_may_stand_in_any_order() -> None:
    scanner = scan('{"arguments": {"a": 1}, "id": 7, "name": "look"}</tool_call>')
    assert (scanner.state, scanner.tool, scanner.arguments) == (Scan.WHOLE, TOOLS["look"], '{"a": 1}')


def test_a_family_without_an_end_marker_is_done_with_the_object() -> None:
    scanner = scan('{"name": "look", "parameters": {}} rest', syntax=BARE)
    assert scanner.state is Scan.WHOLE
    assert scanner.text[scanner.end :] == " rest"


@pytest.mark.parametrize(
    "text",
    [
        "text",
        "[1]",
        '{"name": "rm", "arguments": {}}',
        '{"name": "shell"}',
        '{"name": "shell", "arguments": [1]}',
        '{"name": "shell", "arguments": "{}"}',
        '{"name": ["shell"], "arguments": {}}',
        '{"name": "shell", "arguments": {"a": nope}}',
        '{"name": "shell", "arguments": {}} and more',
        '{"name": "shell", "arguments": {}, "name": "look"}',
        '{"name": "shell", "arguments": {"a": 1}, "arguments": {"a": 2}}',
        '{"name": "shell", "arguments": {"a": "\n"}}',
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_what_is_no_call_is_broken(text: str, step: int) -> None:
    assert scan(text + "x", step=step).state is Scan.BROKEN


def test_a_missing_end_marker_at_the_end_of_the_turn_is_forgiven_but_half_an_object_is_not() -> None:
    for text, state in (('{"name": "look", "arguments": {}}\n', Scan.WHOLE), ('{"name": "look", "argum', Scan.BROKEN)):
        scanner = scan(text)
        scanner.finish()
        assert scanner.state is state
