from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway.events import Event, ResponseEvents, Usage, error_body, error_event
from tidemill_gateway.output import ItemBegun, ItemDelta, ItemEnded, ItemKind, ParseEvent
from tidemill_gateway.request import CreateRequest, parse_create
from tidemill_gateway.tools import FlatTool, ToolSet

SDK: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
TOOLS = ToolSet.parse(
    [
        {"type": "function", "name": "shell"},
        {"type": "namespace", "name": "mcp__demo", "tools": [{"type": "function", "name": "weather"}]},
        {"type": "custom", "name": "exec"},
        {"type": "tool_search", "execution": "client"},
    ]
)
USAGE = Usage(input=100, cached=64, output=7, reasoning=2)


def builder(**fields: Any) -> ResponseEvents:
    return ResponseEvents("resp_1", parse_create({"model": "m", **fields}), 1_700_000_000.0)


def item(kind: ItemKind, *texts: str, tool: FlatTool | None = None, complete: bool = True) -> list[ParseEvent]:
    return [ItemBegun(kind, tool), *map(ItemDelta, texts), ItemEnded(kind, "".join(texts), tool, complete)]


def call(name: str, arguments: str, *, complete: bool = True) -> list[ParseEvent]:
    return item(ItemKind.CALL, arguments, tool=TOOLS.by_name(name), complete=complete)


def types(events: list[Event]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def checked(events: list[Event]) -> list[Event]:
    """Events as the OpenAI SDK's own models take them."""
    for event in events:
        SDK.validate_python(json.loads(json.dumps(event)))
    return events


@pytest.mark.requirement("gateway:sdk-events")
def test_a_message_streams_from_created_to_completed() -> None:
    response = builder()
    events = response.created() + response.feed(item(ItemKind.MESSAGE, "he", "llo"))
    events.append(response.completed(USAGE, 1_700_000_001.0))
    assert types(checked(events)) == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert [event["sequence_number"] for event in events] == list(range(10))
    done = events[-2]["item"]
    assert done | {"id": ""} == {
        "type": "message",
        "id": "",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}],
    }
    assert done["id"].startswith("msg_")
    assert events[-1]["response"]["output"] == [done]
    assert {event["item_id"] for event in events if "item_id" in event} == {done["id"]}


@pytest.mark.requirement("gateway:sdk-events")
def test_reasoning_and_calls_stream_beside_each_other() -> None:
    response = builder()
    parsed = [*item(ItemKind.REASONING, "hm"), *item(ItemKind.MESSAGE, "so"), *call("shell", '{"a": 1}')]
    events = checked(response.feed(parsed))
    assert types(events) == [
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done",
        "output_item.done", "output_item.added", "content_part.added", "output_text.delta", "output_text.done",
        "content_part.done", "output_item.done", "output_item.added", "function_call_arguments.delta",
        "function_call_arguments.done", "output_item.done",
    ]  # fmt: skip
    assert [event["output_index"] for event in events] == [0] * 6 + [1] * 6 + [2] * 4
    assert [done["type"] for done in response.output] == ["reasoning", "message", "function_call"]


@pytest.mark.requirement("gateway:item-shapes")
@pytest.mark.parametrize(
    ("name", "arguments", "shape"),
    [
        ("shell", '{"a": 1}', {"type": "function_call", "name": "shell", "arguments": '{"a": 1}'}),
        (
            "mcp__demo__weather",
            "{}",
            {"type": "function_call", "namespace": "mcp__demo", "name": "weather", "arguments": "{}"},
        ),
        ("exec", '{"input": "text(1)"}', {"type": "custom_tool_call", "name": "exec", "input": "text(1)"}),
        ("exec", '{"input": "```js\\ntext(1)\\n```"}', {"type": "custom_tool_call", "name": "exec", "input": "text(1)"}),
        (
            "tool_search",
            '{"query": "rain"}',
            {"type": "tool_search_call", "execution": "client", "arguments": {"query": "rain"}},
        ),
    ],
)
def test_a_call_has_the_shape_of_its_tool(name: str, arguments: str, shape: dict[str, Any]) -> None:
    response = builder()
    events = checked(response.feed(call(name, arguments)))
    done = events[-1]["item"]
    assert {key: value for key, value in done.items() if key not in ("id", "call_id", "status")} == shape
    assert response.call_ids == (done["call_id"],)
    assert events[0]["item"]["id"] == done["id"]


def test_a_custom_tool_call_streams_its_input_not_its_json() -> None:
    events = builder().feed(call("exec", '{"input": "text(1)"}'))
    assert types(events)[1:-1] == ["custom_tool_call_input.delta", "custom_tool_call_input.done"]
    assert events[1]["delta"] == events[2]["input"] == "text(1)"


def test_call_ids_are_unique() -> None:
    response = builder()
    response.feed(call("shell", "{}") * 3)
    assert len(set(response.call_ids)) == 3


@pytest.mark.requirement("gateway:cut-calls")
@pytest.mark.parametrize("name", ["shell", "exec", "tool_search"])
def test_a_cut_call_is_never_done(name: str) -> None:
    response = builder()
    events = response.feed(call(name, '{"a": "rm -r', complete=False))
    assert not [kind for kind in types(events) if kind.endswith("done")]
    assert response.call_ids == ()
    last = response.incomplete("max_output_tokens", USAGE)
    checked([last])
    assert last["response"]["output"][0]["status"] == "incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_a_cut_message_is_done_with_what_it_has() -> None:
    events = builder().feed(item(ItemKind.MESSAGE, "half", complete=False))
    assert events[-1]["item"]["status"] == "incomplete"
    assert types(events)[-1] == "output_item.done"


def test_the_stream_id_is_echoed_in_every_event() -> None:
    response = builder(stream_id="lane")
    events = [*response.created(), *response.feed(item(ItemKind.MESSAGE, "x")), response.metadata(hops=[])]
    events.append(response.completed(USAGE, 1.0))
    assert {event.get("stream_id") for event in events} == {"lane"}
    assert "stream_id" not in builder().created()[0]


def test_metadata_takes_its_place_in_the_numbering() -> None:
    response = builder()
    response.created()
    event = response.metadata(hops=[{"service": "gateway"}])
    assert event == {
        "type": "response.metadata",
        "sequence_number": 2,
        "response_id": "resp_1",
        "hops": [{"service": "gateway"}],
    }


@pytest.mark.requirement("gateway:sdk-events")
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {
            "tool_choice": "required",
            "temperature": 0,
            "max_output_tokens": 5,
            "metadata": {"a": "b"},
            "previous_response_id": "r",
        },
        {"text": {"format": {"type": "json_object"}}, "reasoning": {"effort": "low"}, "service_tier": "auto", "user": "u"},
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"}},
        {"tools": [{"type": "function", "name": "shell"}], "tool_choice": {"type": "function", "name": "shell"}},
    ],
)
def test_the_response_object_is_one_that_the_sdk_knows(fields: dict[str, Any]) -> None:
    response = builder(**fields)
    response.feed([*item(ItemKind.MESSAGE, "hello"), *call("shell", "{}")])
    parsed = Response.model_validate(response.completed(USAGE, 1_700_000_001.0)["response"])
    assert parsed.output_text == "hello"
    assert parsed.status == "completed"
    assert parsed.usage is not None
    assert parsed.usage.input_tokens_details.cached_tokens == 64
    assert (parsed.usage.total_tokens, parsed.usage.output_tokens_details.reasoning_tokens) == (107, 2)


def test_a_failure_carries_its_code_and_its_advice() -> None:
    error = TidemillError(Reason.OVERLOADED, "12 turns wait")
    event = builder().failed(error, USAGE)
    checked([event])
    assert event["response"]["status"] == "failed"
    assert event["response"]["error"] == {"code": "rate_limit_exceeded", "message": "12 turns wait. Please try again in 1s."}


@pytest.mark.requirement("gateway:error-frame")
def test_an_error_frame_has_a_status_and_names_the_field() -> None:
    error = TidemillError(Reason.PREVIOUS_RESPONSE_NOT_FOUND, "no response 'resp_9'", "previous_response_id")
    event = error_event(error, stream_id="lane", sequence_number=4)
    checked([event])
    assert (event["type"], event["status"], event["stream_id"], event["sequence_number"]) == ("error", 400, "lane", 4)
    assert event["error"] == error_body(error)["error"]
    assert event["error"]["code"] == "previous_response_not_found"
    assert event["error"]["param"] == "previous_response_id"


def test_a_response_repeats_neither_tools_nor_instructions() -> None:
    request = CreateRequest("m", tools=({"type": "function", "name": "shell"},), instructions="be brief")
    body = ResponseEvents("resp_1", request, 0.0).response
    assert (body["tools"], body["instructions"]) == ([], None)
