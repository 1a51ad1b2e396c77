from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway.request import (
    ChoiceMode,
    CreateRequest,
    FormatKind,
    NamedTool,
    ToolChoice,
    parse_create,
)


def refusal(raw: Any) -> TidemillError:
    with pytest.raises(TidemillError) as caught:
        parse_create(raw)
    return caught.value


def codex_frame() -> dict[str, Any]:
    return {
        "type": "response.create",
        "model": "smollm2",
        "stream": True,
        "previous_response_id": "resp_2",
        "input": [{"type": "message", "id": "msg_1", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        "tools": [{"type": "function", "name": "exec_command"}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "thread",
        "text": {"verbosity": "low"},
        "service_tier": "priority",
        "generate": False,
        "client_metadata": {"thread_id": "t", "x-codex-ws-stream-request-start-ms": "1"},
        "prompt_cache_options": {"mode": "implicit"},
        "context_management": [{"type": "compaction"}],
        "a_field_of_next_year": {"any": "thing"},
    }


@pytest.mark.requirement("gateway:codex-request")
def test_a_frame_of_codex_is_read_whole() -> None:
    request = parse_create(codex_frame())
    assert request.model == "smollm2"
    assert request.previous_response_id == "resp_2"
    assert request.input == (codex_frame()["input"][0],)
    assert request.tools == ({"type": "function", "name": "exec_command"},)
    assert not request.store
    assert not request.generate
    assert request.prompt_cache_key == "thread"
    assert request.client_metadata["thread_id"] == "t"
    assert request.echo["service_tier"] == "priority"
    assert request.include == ("reasoning.encrypted_content",)


def test_absent_and_null_fields_take_their_defaults() -> None:
    nulls = dict.fromkeys(["input", "tools", "tool_choice", "text", "temperature", "store", "metadata", "stream_id", "seed"])
    assert parse_create({"model": "m", **nulls}) == parse_create({"model": "m"}) == CreateRequest("m")


@pytest.mark.parametrize(
    ("given_choice", "expected"),
    [
        ("none", ToolChoice(ChoiceMode.NONE)),
        ("required", ToolChoice(ChoiceMode.REQUIRED)),
        ({"type": "function", "name": "f"}, ToolChoice(ChoiceMode.REQUIRED, (NamedTool("function", "f"),))),
        ({"type": "tool_search"}, ToolChoice(ChoiceMode.REQUIRED, (NamedTool("tool_search"),))),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "exec"}]},
            ToolChoice(ChoiceMode.AUTO, (NamedTool("custom", "exec"),)),
        ),
    ],
)
def test_tool_choice_names_a_mode_or_tools(given_choice: Any, expected: ToolChoice) -> None:
    assert parse_create({"model": "m", "tool_choice": given_choice}).tool_choice == expected


def test_a_json_schema_becomes_the_text_format() -> None:
    schema = {"type": "object", "properties": {"answer": {"type": "integer"}}}
    text = {"format": {"type": "json_schema", "name": "reply", "schema": schema, "strict": True}, "verbosity": "low"}
    parsed = parse_create({"model": "m", "text": text}).text_format
    assert (parsed.kind, parsed.name, parsed.schema, parsed.strict) == (FormatKind.JSON_SCHEMA, "reply", schema, True)


@pytest.mark.requirement("gateway:bad-field-named")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": 3}, "model"),
        ({"model": ""}, "model"),
        ({"input": 5}, "input"),
        ({"input": [{"type": "message"}, "text"]}, "input[1]"),
        ({"input": [{}] * 50_001}, "input"),
        ({"tools": {}}, "tools"),
        ({"tools": [{}] * 1025}, "tools"),
        ({"tool_choice": "always"}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "tools": [3]}}, "tool_choice"),
        ({"stream": "yes"}, "stream"),
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": "warm"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": True}, "max_output_tokens"),
        ({"seed": -1}, "seed"),
        ({"include": "all"}, "include"),
        ({"metadata": []}, "metadata"),
        ({"stream_id": "x" * 513}, "stream_id"),
        ({"text": "plain"}, "text"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "schema": {"type": "objekt"}}}}, "text.format.schema"),
        ({"tidemill_forced_output": "text"}, "tidemill_forced_output"),
    ],
)
def test_a_wrong_field_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    error = refusal({"model": "m", **fields})
    assert (error.reason, error.param) == (Reason.INVALID_REQUEST, param)
    assert param in error.message or param == "text"


@pytest.mark.parametrize("field", ["background", "conversation", "prompt", "top_logprobs", "n"])
def test_what_cannot_be_honoured_is_refused_not_ignored(field: str) -> None:
    error = refusal({"model": "m", field: 3})
    assert (error.reason, error.param) == (Reason.UNSUPPORTED_INPUT, field)


def test_a_request_without_a_model_is_refused() -> None:
    assert refusal({}).param == "model"
    assert refusal([]).reason is Reason.INVALID_REQUEST


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(
    ["model", "input", "tools", "tool_choice", "text", "reasoning", "metadata", "include", "temperature", "n", "store", "seed"]
)


@given(st.dictionaries(fields, json_values))
def test_any_json_is_read_or_refused_with_a_reason(raw: dict[str, Any]) -> None:
    try:
        assert isinstance(parse_create(raw), CreateRequest)
    except TidemillError as error:
        assert error.reason in (Reason.INVALID_REQUEST, Reason.UNSUPPORTED_INPUT)
