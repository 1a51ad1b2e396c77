from __future__ import annotations

import pytest

from tidemill_harness.items import ToolCall, call_of, text_of, unanswered


def test_calls_that_ask_the_same_have_one_signature() -> None:
    first, second = ToolCall("1", "shell", '{"a": 1, "b": 2}'), ToolCall("2", "shell", '{"b":2,"a":1}')
    assert first.signature() == second.signature() != ToolCall("1", "shell", '{"a": 1}').signature()
    assert ToolCall("1", "shell", "{").signature() == ToolCall("2", "shell", "{").signature()


@pytest.mark.parametrize(("kind", "field"), [("function_call", "arguments"), ("custom_tool_call", "input")])
def test_a_call_is_answered_in_its_own_kind(kind: str, field: str) -> None:
    call = call_of({"type": kind, "call_id": "c", "name": "n", field: "x"})
    assert call is not None and call.arguments == "x"
    assert call.output("y") == {"type": f"{kind}_output", "call_id": "c", "output": "y"}


def test_other_items_are_no_calls_and_refusals_are_text() -> None:
    message = {"type": "message", "content": [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]}
    assert call_of(message) is None
    assert text_of(message) == "ab"
    assert text_of({"type": "reasoning", "content": []}) == ""


def test_unanswered_calls_keep_their_order() -> None:
    calls = [{"type": "function_call", "call_id": str(number), "name": "n", "arguments": ""} for number in range(3)]
    history = [*calls, {"type": "function_call_output", "call_id": "1", "output": ""}]
    assert [call.call_id for call in unanswered(history)] == ["0", "2"]
