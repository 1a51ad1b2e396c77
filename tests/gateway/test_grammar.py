from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from tidemill_gateway.grammar import check_grammar, turn_grammar
from tidemill_gateway.request import ChoiceMode, FormatKind, TextFormat
from tidemill_gateway.syntax import CallSyntax, ThinkingSyntax
from tidemill_gateway.tools import FlatTool, ToolSet

HERMES = CallSyntax("<tool_call>\n", "\n</tool_call>")
BARE = CallSyntax("", "", "name", "parameters")
THINKING = ThinkingSyntax("<think>", "</think>")
AUTO, REQUIRED, NONE = ChoiceMode.AUTO, ChoiceMode.REQUIRED, ChoiceMode.NONE

TOOLS = ToolSet.parse(
    [
        {
            "type": "function",
            "name": "shell",
            "parameters": {
                "type": "object",
                "properties": {"command": {"type": "string"}, "timeout": {"type": "integer", "minimum": 1}},
                "required": ["command"],
            },
        },
        {
            "type": "function",
            "name": "plot",
            "parameters": {
                "type": "object",
                "properties": {"at": {"$ref": "#/$defs/Point"}},
                "required": ["at"],
                "$defs": {"Point": {"type": "object", "properties": {"x": {"type": "number", "format": "double"}}}},
            },
        },
        {"type": "custom", "name": "exec"},
    ]
).tools

SHELL = '<tool_call>\n{"name": "shell", "arguments": {"command": "ls -la \\"x\\" </tool_call>"}}\n</tool_call>'
PLOT = '<tool_call>\n{"name": "plot", "arguments": {"at": {"x": 1.5}}}\n</tool_call>'
EXEC = '<tool_call>\n{"name": "exec", "arguments": {"input": "text(1)"}}\n</tool_call>'
SHELL_OBJECT = '{"name": "shell", "parameters": {"command": "ls"}}'
PLOT_OBJECT = '{"name": "plot", "parameters": {"at": {"x": 2}}}'
REPLY = TextFormat(
    FormatKind.JSON_SCHEMA, "r", {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}
)


class Judge:
    """Says how far texts are allowed by a grammar, token by token of the default model."""

    def __init__(self, tokenizer: LLTokenizer, end_token: int) -> None:
        self.tokenizer = tokenizer
        self.end_token = end_token

    def verdict(self, grammar: str, text: str) -> str:
        """``ends``: allowed, and the turn may end; ``goes on``: allowed, but it may not; ``refused``."""
        matcher = LLMatcher(self.tokenizer, grammar, log_level=0)
        assert not matcher.is_error(), matcher.get_error()
        for token in self.tokenizer.tokenize_str(text):
            if not matcher.consume_token(token):
                return "refused"
        mask = matcher.compute_bitmask()
        return "ends" if mask[self.end_token // 8] >> self.end_token % 8 & 1 else "goes on"


@pytest.fixture(scope="session")
def judge(smollm2: Path) -> Judge:
    return Judge(LLTokenizer((smollm2 / "tokenizer.json").read_text(encoding="utf-8"), eos_token=2), 2)


def grammar(
    mode: ChoiceMode, tools: Sequence[FlatTool] = TOOLS, *, parallel: bool = True, syntax: CallSyntax = HERMES, **options: Any
) -> str:
    return turn_grammar(tools, mode, parallel=parallel, syntax=syntax, **options)


def test_a_free_turn_has_no_grammar() -> None:
    assert grammar(NONE) == ""
    assert grammar(AUTO, ()) == ""


@pytest.mark.model
@pytest.mark.requirement("gateway:grammar-auto")
@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("", "ends"),
        ('Hello, 你好 \U0001f600 {"name": 3}', "ends"),
        ("a <tool_cal and <tool>", "ends"),
        (SHELL, "ends"),
        (PLOT, "ends"),
        (EXEC, "ends"),
        (f"I look.\n{SHELL}", "ends"),
        (f"I look.\n{SHELL}\n{PLOT}\n{EXEC}", "ends"),
        ("I look. <tool_call>", "goes on"),
        (SHELL[:-1], "goes on"),
        ("<tool_call> is the marker", "refused"),
        (f"{SHELL} and text", "refused"),
        ('<tool_call>\n{"name": "shel', "goes on"),
        ('<tool_call>\n{"name": "shel"', "refused"),
        ('<tool_call>\n{"name": "rm", "arguments": {}}', "refused"),
        ('<tool_call>\n{"name": "shell", "arguments": {}}', "refused"),
        ('<tool_call>\n{"name": "shell", "arguments": {"command": 3}}', "refused"),
        ('<tool_call>\n{"name": "shell", "arguments": {"command": "x", "timeout": 0}}', "refused"),
        ('<tool_call>\n{"name": "shell", "arguments": {"command": "x", "other": 1}}', "refused"),
        ('<tool_call>\n{"name": "plot", "arguments": {"at": {"x": "1"}}}', "refused"),
        ('<tool_call>\n{"name":  "shell"', "refused"),
        ('<tool_call>\n{"name": "shell", "arguments": {"command": "x"  }}', "refused"),
    ],
)
def test_under_auto_a_turn_is_text_or_ends_in_calls_that_fit(judge: Judge, text: str, verdict: str) -> None:
    assert judge.verdict(grammar(AUTO), text) == verdict


@pytest.mark.model
@pytest.mark.requirement("gateway:grammar-required")
@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("", "goes on"),
        ("I", "refused"),
        ("\n", "refused"),
        (SHELL, "ends"),
        (f"{SHELL}\n{PLOT}", "ends"),
        (SHELL[:30], "goes on"),
    ],
)
def test_under_required_a_turn_is_calls_alone(judge: Judge, text: str, verdict: str) -> None:
    assert judge.verdict(grammar(REQUIRED), text) == verdict


@pytest.mark.model
def test_without_parallel_calls_one_call_ends_the_turn(judge: Judge) -> None:
    for mode in (AUTO, REQUIRED):
        assert judge.verdict(grammar(mode, parallel=False), SHELL) == "ends"
        assert judge.verdict(grammar(mode, parallel=False), f"{SHELL}\n{PLOT}") == "refused"


@pytest.mark.model
def test_only_the_chosen_tool_can_be_called(judge: Judge) -> None:
    chosen = grammar(REQUIRED, TOOLS[1:2])
    assert judge.verdict(chosen, PLOT) == "ends"
    assert judge.verdict(chosen, SHELL) == "refused"


@pytest.mark.model
@pytest.mark.requirement("gateway:grammar-auto")
@pytest.mark.parametrize(
    ("text", "auto", "required"),
    [
        ("", "ends", "goes on"),
        ("Braces { later }", "ends", "refused"),
        (SHELL_OBJECT, "ends", "ends"),
        (PLOT_OBJECT, "ends", "ends"),
        ('{"answer": 3}', "refused", "refused"),
        ('\n {"answer"', "refused", "refused"),
        ('{"name": "plot", "parameters": {"at": {"x": "2"}}}', "refused", "refused"),
        (f"{SHELL_OBJECT}{SHELL_OBJECT}", "refused", "refused"),
        (f"{SHELL_OBJECT} and text", "refused", "refused"),
    ],
)
def test_a_family_without_markers_calls_by_an_object(judge: Judge, text: str, auto: str, required: str) -> None:
    assert judge.verdict(grammar(AUTO, syntax=BARE), text) == auto
    assert judge.verdict(grammar(REQUIRED, syntax=BARE), text) == required


@pytest.mark.model
@pytest.mark.parametrize(
    ("text", "auto", "required"),
    [
        ("plain", "ends", "refused"),
        ("<think>\nhm", "goes on", "goes on"),
        ("<think>\nI may <tool_call> it.\n</think>\n\ndone", "ends", "refused"),
        (f"<think>\nI may <tool_call> it.\n</think>\n\n{SHELL}", "ends", "ends"),
        (f"<think></think>I look\n{SHELL}\n{PLOT}", "ends", "refused"),
        (SHELL, "ends", "ends"),
    ],
)
def test_thinking_comes_first_and_is_free(judge: Judge, text: str, auto: str, required: str) -> None:
    assert judge.verdict(grammar(AUTO, thinking=THINKING), text) == auto
    assert judge.verdict(grammar(REQUIRED, thinking=THINKING), text) == required


@pytest.mark.model
@pytest.mark.requirement("gateway:text-format")
def test_a_text_format_binds_the_text_and_leaves_calls_free(judge: Judge) -> None:
    for form in (grammar(AUTO, (), text_format=REPLY), grammar(NONE, text_format=REPLY)):
        assert judge.verdict(form, '{"answer": 3}') == "ends"
        assert judge.verdict(form, '{"answer": "three"}') == "refused"
        assert judge.verdict(form, "three") == "refused"
        assert judge.verdict(form, SHELL) == "refused"
    with_tools = grammar(AUTO, text_format=REPLY)
    assert [judge.verdict(with_tools, text) for text in ('{"answer": 3}', SHELL, "three")] == ["ends", "ends", "refused"]
    bare = grammar(AUTO, syntax=BARE, text_format=REPLY)
    assert [judge.verdict(bare, text) for text in ('{"answer": 3}', SHELL_OBJECT, "three")] == ["ends", "ends", "refused"]
    thinking = grammar(AUTO, (), text_format=REPLY, thinking=THINKING)
    assert judge.verdict(thinking, '<think>\nhm\n</think>\n\n{"answer": 3}') == "ends"
    assert judge.verdict(grammar(AUTO, (), text_format=TextFormat(FormatKind.JSON_OBJECT)), '{"any": [1]}') == "ends"


@pytest.mark.model
def test_a_string_limit_ends_strings(judge: Judge) -> None:
    limited = grammar(REQUIRED, string_limit=20)
    head = '<tool_call>\n{"name": "shell", "arguments": {"command": "'
    assert judge.verdict(limited, head + "a" * 20 + '"}}\n</tool_call>') == "ends"
    assert judge.verdict(limited, head + "a" * 21) == "refused"


@pytest.mark.model
def test_forty_tools_make_one_grammar(judge: Judge) -> None:
    specs = [
        {
            "type": "function",
            "name": f"tool_{n}",
            "parameters": {"type": "object", "properties": {f"p{n}": {"type": "integer"}}},
        }
        for n in range(40)
    ]
    many = grammar(AUTO, ToolSet.parse(specs).tools)
    assert check_grammar(many) == ""
    assert judge.verdict(many, '<tool_call>\n{"name": "tool_39", "arguments": {"p39": 1}}\n</tool_call>') == "ends"
    assert judge.verdict(many, '<tool_call>\n{"name": "tool_39", "arguments": {"p38"') == "refused"


class MarkerTokens:
    """A tokenizer with a token for each byte and one for the begin marker, as Qwen's has."""

    eos_token_id, bos_token_id, special_token_ids = 257, None, (257,)
    tokens = (*(bytes([value]) for value in range(256)), b"<tool_call>", b"<|im_end|>")

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


def test_a_marker_that_is_one_token_starts_a_call() -> None:
    tokenizer = LLTokenizer(TokenizerWrapper(MarkerTokens()))
    matcher = LLMatcher(tokenizer, grammar(AUTO), log_level=0)
    assert matcher.consume_tokens([*b"I look.", 256])
    assert matcher.validate_tokens([ord(" ")]) == 0
    assert matcher.consume_tokens([*PLOT.removeprefix("<tool_call>").encode(), 257])


def test_a_broken_grammar_is_described() -> None:
    assert check_grammar("start: nowhere") != ""
