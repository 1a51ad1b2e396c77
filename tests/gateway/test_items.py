from __future__ import annotations

from typing import Any

import pytest

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway.items import (
    CallLedger,
    Message,
    ModelTurn,
    ParsedInput,
    Reasoning,
    ToolCall,
    ToolList,
    ToolOutput,
    parse_input,
    parse_output,
)
from tidemill_gateway.tools import ToolSet

TOOLS = ToolSet.parse(
    [
        {"type": "function", "name": "shell"},
        {"type": "custom", "name": "exec"},
        {"type": "tool_search", "execution": "client"},
        {"type": "namespace", "name": "mcp__demo", "tools": [{"type": "function", "name": "weather"}]},
    ]
)


def read(*raw: dict[str, Any], **options: Any) -> ParsedInput:
    return parse_input(raw, TOOLS, model="smollm2", **options)


def entries(*raw: dict[str, Any], **options: Any) -> list[Any]:
    return [entry.items if isinstance(entry, ModelTurn) else entry for entry in read(*raw, **options).entries]


def refusal(*raw: dict[str, Any], **options: Any) -> TidemillError:
    with pytest.raises(TidemillError) as caught:
        read(*raw, **options)
    return caught.value


def user(text: str = "hi") -> dict[str, Any]:
    return {"type": "message", "id": "msg_1", "role": "user", "content": [{"type": "input_text", "text": text}]}


def call(call_id: str = "c1", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": "fc", "call_id": call_id, "name": "shell", "arguments": '{"b":1, "a":2}', **fields}


def output(call_id: str = "c1", text: Any = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "id": "fco", "call_id": call_id, "output": text}


def test_text_is_a_message_of_the_user() -> None:
    assert parse_input("hello", TOOLS, model="m").entries == (Message("user", "hello"),)


@pytest.mark.parametrize("role", ["system", "developer", "user"])
def test_messages_take_text_and_parts_of_text(role: str) -> None:
    parts = [{"type": "input_text", "text": "one\n"}, {"type": "input_text", "text": "two"}, {"type": "text", "text": "three"}]
    assert entries({"role": role, "content": "text"}, {"type": "message", "role": role, "content": parts}) == [
        Message(role, "text"),
        Message(role, "one\ntwo\nthree"),
    ]


def test_consecutive_items_of_the_model_are_one_turn() -> None:
    assistant = {"role": "assistant", "content": [{"type": "output_text", "text": "I look", "annotations": []}]}
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    refused = {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    assert entries(user(), thought, assistant, call(), output(), refused) == [
        Message("user", "hi"),
        (Reasoning("hm"), Message("assistant", "I look"), ToolCall("shell", '{"b":1, "a":2}')),
        ToolOutput("done"),
        (Message("assistant", "no"),),
    ]


def test_calls_of_every_kind_take_their_flat_names() -> None:
    calls = [
        call("c1", namespace="mcp__demo", name="weather"),
        {"type": "custom_tool_call", "call_id": "c2", "name": "exec", "input": "text('é')"},
        {"type": "tool_search_call", "call_id": "c3", "execution": "client", "arguments": {"query": "x"}},
        {"type": "local_shell_call", "call_id": "c4", "action": {"command": ["ls"]}},
        call("c5", name="weather"),
        call("c6", name="gone", arguments="not json"),
    ]
    (turn,) = entries(*calls, closing=False)
    assert turn == (
        ToolCall("mcp__demo__weather", '{"b":1, "a":2}'),
        ToolCall("exec", '{"input": "text(\'é\')"}'),
        ToolCall("tool_search", '{"query": "x"}'),
        ToolCall("local_shell", '{"command": ["ls"]}'),
        ToolCall("mcp__demo__weather", '{"b":1, "a":2}'),
        ToolCall("gone", '"not json"'),
    )


def test_outputs_are_text_or_parts_of_text() -> None:
    parts = [{"type": "input_text", "text": "Output:\n"}, {"type": "input_text", "text": "5"}]
    custom = {"type": "custom_tool_call", "call_id": "c2", "name": "exec", "input": "x"}
    answered = {"type": "custom_tool_call_output", "call_id": "c2", "output": parts}
    assert entries(call(), custom, output(), answered)[1:] == [ToolOutput("done"), ToolOutput("Output:\n5")]


@pytest.mark.requirement("gateway:missing-output")
def test_a_call_without_an_output_is_answered_as_aborted_where_its_outputs_end() -> None:
    found = entries(call("c1"), call("c2"), call("c3"), output("c2"), user("go on"))
    assert found[1:] == [ToolOutput("done"), ToolOutput("aborted"), ToolOutput("aborted"), Message("user", "go on")]


def test_an_output_that_comes_later_is_not_aborted() -> None:
    found = entries(call("c1"), user("wait"), output("c1"))
    assert found[1:] == [Message("user", "wait"), ToolOutput("done")]


@pytest.mark.requirement("gateway:missing-output")
def test_the_ledger_carries_open_calls_to_the_next_request() -> None:
    ledger = CallLedger().called(["c1", "c2"])
    assert entries(output("c1"), calls=ledger) == [ToolOutput("done"), ToolOutput("aborted")]
    waiting = read(output("c1"), calls=ledger, closing=False)
    assert waiting.calls.open == ("c2",)
    assert entries(output("c2"), output("c1", "late"), calls=waiting.calls) == [ToolOutput("done"), ToolOutput("late")]


def test_the_ledger_is_bounded() -> None:
    assert len(CallLedger().called([str(n) for n in range(5000)]).known) == 1024


@pytest.mark.requirement("gateway:orphan-output")
def test_an_output_of_no_call_is_refused() -> None:
    error = refusal(user(), output("c9"))
    assert (error.reason, error.param) == (Reason.INVALID_REQUEST, "input[1].call_id")
    assert "'c9'" in error.message


def test_found_tools_answer_the_search_and_can_be_called() -> None:
    search = {"type": "tool_search_call", "call_id": "ts", "execution": "client", "arguments": {"query": "rain"}}
    found = {
        "type": "tool_search_output",
        "call_id": "ts",
        "tools": [
            {"type": "namespace", "name": "mcp__sky", "tools": [{"type": "function", "name": "rain", "defer_loading": True}]}
        ],
    }
    parsed = read(search, found, call("c2", namespace="mcp__sky", name="rain"), closing=False)
    rain = parsed.tools.by_name("mcp__sky__rain")
    assert rain is not None
    assert parsed.entries[1:3] == (ToolOutput("Found: mcp__sky__rain"), ToolList((rain,)))
    assert read(search, {**found, "tools": []}).entries[1:] == (ToolOutput("No tools found"),)


def test_additional_tools_extend_the_conversation() -> None:
    item = {"type": "additional_tools", "id": "at_1", "role": "developer", "tools": [{"type": "function", "name": "late"}]}
    parsed = read(item)
    assert parsed.entries == (ToolList(parsed.tools.tools[-1:]),)
    assert parsed.tools.tools[:-1] == TOOLS.tools


def test_a_compaction_stands_for_the_history_before_it() -> None:
    assert entries({"type": "compaction", "id": "cmp", "encrypted_content": "summary"}) == [Message("user", "summary")]


def test_reasoning_that_only_its_maker_can_read_is_left_out() -> None:
    assert entries({"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}, user()) == [Message("user", "hi")]


@pytest.mark.requirement("gateway:text-only")
@pytest.mark.parametrize("kind", ["input_image", "input_file", "input_audio"])
def test_other_input_than_text_is_refused_by_name(kind: str) -> None:
    for item in ({"role": "user", "content": [{"type": kind}]}, output("c1", [{"type": kind}])):
        error = refusal(item, calls=CallLedger().called(["c1"]))
        assert error.reason is Reason.UNSUPPORTED_INPUT
        assert "'smollm2' takes text" in error.message
        assert kind in error.message


@pytest.mark.requirement("gateway:bad-item-named")
@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "web_search_call"}, "input[0].type"),
        ({"type": "item_reference", "id": "msg_1"}, "input[0].type"),
        ({"type": "compaction_trigger"}, "input[0].type"),
        ({"type": {"a": 1}}, "input[0].type"),
        ({"type": "message", "role": "tool", "content": "x"}, "input[0].role"),
        ({"type": "message", "role": ["user"], "content": "x"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": ["input_text"]}]}, "input[0].content[0]"),
        ({"role": "user", "content": ["text"]}, "input[0].content[0]"),
        ({"type": "function_call", "name": "f", "call_id": "c"}, "input[0].arguments"),
        ({"type": "function_call", "arguments": "{}", "call_id": "c"}, "input[0].name"),
        ({"type": "custom_tool_call", "name": "exec", "call_id": "c"}, "input[0].input"),
        ({"type": "function_call_output", "output": "x"}, "input[0].call_id"),
        ({"type": "additional_tools"}, "input[0].tools"),
    ],
)
def test_a_bad_item_is_refused_by_name(item: dict[str, Any], param: str) -> None:
    error = refusal(item)
    assert (error.reason, error.param) == (Reason.INVALID_REQUEST, param)


def test_a_bad_tool_in_an_item_is_refused_by_its_place() -> None:
    error = refusal({"type": "additional_tools", "tools": [{"type": "function", "name": "f", "parameters": {"type": 3}}]})
    assert (error.reason, error.param) == (Reason.INVALID_TOOLS, "input[0].tools[0].parameters")


def test_output_items_are_read_for_forced_turns() -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]}
    items = parse_output([said, call()], TOOLS, model="m", param="tidemill_forced_output")
    assert items == (Message("assistant", "so"), ToolCall("shell", '{"b":1, "a":2}'))
    with pytest.raises(TidemillError) as caught:
        parse_output([said, user()], TOOLS, model="m", param="tidemill_forced_output")
    assert caught.value.param == "tidemill_forced_output[1].type"
