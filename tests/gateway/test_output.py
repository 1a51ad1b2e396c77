from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_common.vocabulary import Vocabulary
from tidemill_gateway.output import ItemBegun, ItemDelta, ItemEnded, ItemKind, OutputParser, ParseEvent, TokenSpans
from tidemill_gateway.syntax import CallSyntax, ThinkingSyntax
from tidemill_gateway.tools import ToolSet

END = 256
VOCABULARY = Vocabulary((*(bytes([value]) for value in range(256)), b"<|im_end|>"), {})
HERMES = CallSyntax("<tool_call>\n", "\n</tool_call>")
BARE = CallSyntax("", "", "name", "parameters")
THINKING = ThinkingSyntax("<think>", "</think>")
TOOLS = ToolSet.parse([{"type": "function", "name": "shell"}]).tools
ARGUMENTS = '{"command": "echo </tool_call> \\"}\\""}'
CALL = f'<tool_call>\n{{"name": "shell", "arguments": {ARGUMENTS}}}\n</tool_call>'


def parser(**options: Any) -> OutputParser:
    return OutputParser(VOCABULARY, [END], **{"syntax": HERMES, "tools": TOOLS, **options})


def ids_of(text: str) -> list[int]:
    return [*text.encode("utf-8", "surrogateescape"), END]


def events(ids: list[int], cuts: list[int] = [], *, complete: bool = True, **options: Any) -> list[ParseEvent]:  # noqa: B006
    reader = parser(**options)
    found: list[ParseEvent] = []
    borders = [0, *sorted(cuts), len(ids)]
    for start, end in pairwise(borders):
        found += reader.push(ids[start:end])
    return found + reader.finish(complete=complete)


def items(text: str, **options: Any) -> list[tuple[ItemKind, str]]:
    return [(event.kind, event.text) for event in events(ids_of(text), **options) if isinstance(event, ItemEnded)]


def message(text: str) -> tuple[ItemKind, str]:
    return ItemKind.MESSAGE, text


def call(arguments: str = ARGUMENTS) -> tuple[ItemKind, str]:
    return ItemKind.CALL, arguments


@pytest.mark.requirement("gateway:output-items")
@pytest.mark.parametrize("constrained", [True, False])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n", []),
        ("hello", [message("hello")]),
        (" padded \n", [message(" padded \n")]),
        ("half a <tool_ca", [message("half a <tool_ca")]),
        (CALL, [call()]),
        (f"I look.\n{CALL}", [message("I look."), call()]),
        (f"I look.{CALL}\n{CALL}", [message("I look."), call(), call()]),
        (f"{CALL}\n\nafter", [call(), message("after")]),
        ("say <tool_call> twice <tool_call> please", [message("say <tool_call> twice <tool_call> please")]),
        (
            '<tool_call>\n{"name": "rm", "arguments": {}}\n</tool_call>',
            [message('<tool_call>\n{"name": "rm", "arguments": {}}\n</tool_call>')],
        ),
        (f"a <tool_call> b {CALL}", [message("a <tool_call> b"), call()]),
        ('<tool_call>{"arguments": {"a": 1}, "name": "shell"}</tool_call>', [call('{"a": 1}')]),
        ('<tool_call>\n{"name": "shell", "arguments": {}}', [call("{}")]),
    ],
)
def test_text_and_calls_become_items(text: str, expected: list[tuple[ItemKind, str]], constrained: bool) -> None:
    assert items(text, constrained=constrained) == expected


def test_without_tools_everything_is_text() -> None:
    assert items(CALL, tools=()) == [message(CALL)]
    assert items(f" {CALL} ", tools=(), syntax=BARE) == [message(f" {CALL} ")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>\nhm <tool_call>\n</think>\n\nyes", [(ItemKind.REASONING, "hm <tool_call>"), message("yes")]),
        (f"<think>hm</think>{CALL}", [(ItemKind.REASONING, "hm"), call()]),
        ("<think>\n\n</think>\n\nyes", [message("yes")]),
        ("<think>never ends", [(ItemKind.REASONING, "never ends")]),
        ("<thin", [message("<thin")]),
        ("later <think> is text", [message("later <think> is text")]),
    ],
)
def test_thinking_is_an_item_of_its_own(text: str, expected: list[tuple[ItemKind, str]]) -> None:
    assert items(text, thinking=THINKING) == expected


def test_tokens_of_thinking_are_counted() -> None:
    reader = parser(thinking=THINKING)
    reader.push(ids_of("<think>hm</think>yes"))
    reader.finish()
    assert reader.reasoning_tokens == len("<think>hm</think>")
    assert reader.token_ids == ids_of("<think>hm</think>yes")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name": "shell", "parameters": {"a": 1}}', [call('{"a": 1}')]),
        (' {"name": "shell", "parameters": {}}', [call("{}")]),
        ('{"answer": 3}', [message('{"answer": 3}')]),
        ('{"answer', [message('{"answer')]),
        ("so {", [message("so {")]),
    ],
)
def test_a_family_without_markers_calls_by_an_object(text: str, expected: list[tuple[ItemKind, str]]) -> None:
    assert items(text, syntax=BARE) == expected


def test_text_flows_but_for_what_may_begin_a_call() -> None:
    reader = parser()
    assert reader.push(b"I look. <to") == [ItemBegun(ItemKind.MESSAGE), ItemDelta("I look.")]
    assert reader.push(b"ol kit") == [ItemDelta(" <tool kit")]
    assert reader.push(b"!") == [ItemDelta("!")]


@pytest.mark.requirement("gateway:early-calls")
def test_a_call_is_done_with_its_closing_text() -> None:
    reader = parser()
    assert reader.push(b'<tool_call>\n{"name": "shell", "argum') == []
    assert reader.push(b'ents": {"a"') == [ItemBegun(ItemKind.CALL, TOOLS[0]), ItemDelta('{"a"')]
    assert reader.push(b": 1}}\n</tool_call") == [ItemDelta(": 1}")]
    (ended,) = reader.push(b">")
    assert ended == ItemEnded(ItemKind.CALL, '{"a": 1}', TOOLS[0], True, (0, 65))


def test_an_unvouched_call_is_given_once_it_is_whole() -> None:
    reader = parser(constrained=False)
    assert reader.push(CALL[:-1].encode()) == []
    begun, delta, ended = reader.push(CALL[-1:].encode())
    assert (begun, delta) == (ItemBegun(ItemKind.CALL, TOOLS[0]), ItemDelta(ARGUMENTS))
    assert isinstance(ended, ItemEnded)


@pytest.mark.parametrize("text", ["some te", f"{CALL[:60]}"])
def test_a_cut_turn_ends_in_an_incomplete_item(text: str) -> None:
    last = events(list(text.encode()), complete=False)[-1]
    assert isinstance(last, ItemEnded)
    assert not last.complete


def test_an_item_knows_its_tokens() -> None:
    spans = [event.tokens for event in events(ids_of(f"é {CALL}\n{CALL}")) if isinstance(event, ItemEnded)]
    assert spans == [(0, 2), (3, 3 + len(CALL)), (4 + len(CALL), 4 + 2 * len(CALL))]


def test_a_token_over_a_border_belongs_to_both_items() -> None:
    spans = TokenSpans()
    for length in (2, 0, 3, 1):
        spans.add(length)
    assert (spans.span(0, 2), spans.span(2, 4), spans.span(4, 6)) == ((0, 1), (1, 3), (2, 4))


pieces = st.lists(
    st.sampled_from(
        ["<tool_call>", "</tool_call>", "\n", " ", "é", "<think>", "</think>", "text", "{", "}", '"', CALL, "\udcff", "<"]
    )
    | st.text(max_size=4),
    max_size=8,
).map("".join)


@pytest.mark.requirement("gateway:output-items")
@given(pieces.map(lambda text: ids_of(text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape"))), st.data())
def test_items_do_not_depend_on_how_ids_arrive(ids: list[int], data: st.DataObject) -> None:
    options: dict[str, Any] = {
        "constrained": data.draw(st.booleans()),
        "thinking": data.draw(st.sampled_from([ThinkingSyntax(), THINKING])),
        "syntax": data.draw(st.sampled_from([HERMES, BARE])),
        "complete": data.draw(st.booleans()),
    }
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=6))

    def whole(found: list[ParseEvent]) -> list[ParseEvent]:
        return [event for event in found if not isinstance(event, ItemDelta)]

    once = events(ids, **options)
    pieced = events(ids, cuts, **options)
    assert whole(once) == whole(pieced)
    assert "".join(event.text for event in pieced if isinstance(event, ItemDelta)) == "".join(
        event.text for event in once if isinstance(event, ItemEnded)
    )


@given(
    st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=6), max_size=2), min_size=1, max_size=3),
    st.text(max_size=10),
)
def test_what_a_model_would_write_is_read_back(calls: list[dict[str, str]], text: str) -> None:
    written = [json.dumps(arguments, ensure_ascii=False) for arguments in calls]
    body = "\n".join(f'<tool_call>\n{{"name": "shell", "arguments": {arguments}}}\n</tool_call>' for arguments in written)
    expected = [call(arguments) for arguments in written]
    said = text.rstrip()
    assert items(f"{text}{body}") == ([message(said)] if said else []) + expected
