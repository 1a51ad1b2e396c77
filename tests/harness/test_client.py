from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.support import fake_gateway as fake
from tests.support.fake_gateway import Act, FakeGateway
from tidemill_common.errors import Reason, TidemillError
from tidemill_harness.client import Patience, ResponsesClient
from tidemill_harness.endpoint import Endpoint
from tidemill_harness.events import ItemDone, Resent, TextDelta, TurnDone, TurnEvent, Waiting
from tidemill_harness.frames import Request
from tidemill_harness.items import Item, message

TOOLS = [{"type": "function", "name": "shell", "parameters": {"type": "object", "properties": {}}}]
QUICK = Patience(connect=5, reconnect=5, event=5, close=1, busy_retries=2, busy_longest=0.01)


def client_of(gateway: FakeGateway, patience: Patience = QUICK, hops: bool = False) -> ResponsesClient:
    return ResponsesClient(Endpoint(gateway.url, "key"), Request("fake", TOOLS, "cache"), patience=patience, hops=hops)


async def turn(client: ResponsesClient, items: Sequence[Item], tool_choice: str = "auto") -> list[TurnEvent]:
    return [event async for event in client.turn(items, tool_choice)]


@pytest.mark.requirement("harness:incremental")
async def test_one_socket_and_only_new_items_after_the_first_turn() -> None:
    gateway = FakeGateway([fake.calls("r1", fake.call_item("shell", {})), fake.says("done", "r2"), fake.says("again", "r3")])
    async with gateway.running(), client_of(gateway) as client:
        await turn(client, [message("developer", "be brief"), message("user", "go")], "required")
        output = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}
        await turn(client, [output])
        await turn(client, [message("user", "more")])
    first, second, third = gateway.requests
    assert gateway.connections == 1
    assert "previous_response_id" not in first and len(first["input"]) == 2
    assert (second["previous_response_id"], second["input"]) == ("r1", [output])
    assert (third["previous_response_id"], third["input"]) == ("r2", [message("user", "more")])
    assert [request["tool_choice"] for request in gateway.requests] == ["required", "auto", "auto"]


@pytest.mark.requirement("harness:stable-prefix")
async def test_what_is_not_input_is_the_same_in_every_request() -> None:
    gateway = FakeGateway([fake.says("a", "r1"), fake.says("b", "r2")])
    async with gateway.running(), client_of(gateway) as client:
        await turn(client, [message("user", "one")])
        await turn(client, [message("user", "two")])
    varying = {"input", "previous_response_id"}
    first, second = ([(key, request[key]) for key in request if key not in varying] for request in gateway.requests)
    assert first == second


@pytest.mark.requirement("harness:resend")
@pytest.mark.parametrize("code", ["previous_response_not_found", "websocket_connection_limit_reached"])
async def test_a_lost_response_is_answered_by_the_whole_conversation_once(code: str) -> None:
    gateway = FakeGateway([fake.says("a", "r1"), [fake.error(code)], fake.says("b", "r2"), fake.says("c", "r3")])
    async with gateway.running(), client_of(gateway) as client:
        await turn(client, [message("user", "one")])
        events = await turn(client, [message("user", "two")])
        await turn(client, [message("user", "three")])
    assert [type(event) for event in events] == [Resent, TextDelta, ItemDone, TurnDone]
    lost, whole, after = gateway.requests[1:]
    assert lost["previous_response_id"] == "r1"
    assert "previous_response_id" not in whole
    assert whole["input"] == [message("user", "one"), fake.text_item("a"), message("user", "two")]
    assert after["previous_response_id"] == "r2"
    assert gateway.connections == (2 if code.startswith("websocket") else 1)


@pytest.mark.requirement("harness:resend")
async def test_a_broken_socket_is_reopened_and_the_whole_sent_once() -> None:
    gateway = FakeGateway([fake.says("a", "r1"), [fake.delta("hal"), Act.DROP], fake.says("b", "r2")])
    async with gateway.running(), client_of(gateway) as client:
        await turn(client, [message("user", "one")])
        events = await turn(client, [message("user", "two")])
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["hal", "b"]
    assert any(isinstance(event, Resent) for event in events)
    assert len(gateway.requests[2]["input"]) == 3
    assert client.connections == 2


async def test_a_second_loss_in_one_turn_is_an_error() -> None:
    gateway = FakeGateway([[Act.DROP], [Act.DROP]])
    async with gateway.running(), client_of(gateway) as client:
        with pytest.raises(TidemillError, match="once more") as caught:
            await turn(client, [message("user", "one")])
    assert caught.value.reason is Reason.UNAVAILABLE
    assert len(gateway.requests) == 2


async def test_a_gateway_that_restarts_is_waited_for() -> None:
    gateway = FakeGateway([[Act.DROP], fake.says("b", "r2")])
    async with gateway.running(), client_of(gateway) as client:
        gateway.refusals = [503, 502]
        await turn(client, [message("user", "one")])
    assert gateway.connections == 2


async def test_a_turn_that_breaks_after_a_call_keeps_the_call_and_is_not_asked_again() -> None:
    call = fake.call_item("shell", {"command": "rm x"})
    gateway = FakeGateway([[fake.done(call), Act.DROP], fake.says("b", "r2")])
    async with gateway.running(), client_of(gateway) as client:
        events = await turn(client, [message("user", "one")])
        output = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}
        await turn(client, [output])
    assert [type(event) for event in events] == [ItemDone, TurnDone]
    assert gateway.requests[1]["input"] == [message("user", "one"), call, output]
    assert "previous_response_id" not in gateway.requests[1]


@pytest.mark.requirement("harness:back-pressure")
async def test_a_busy_server_is_asked_again_with_the_same_delta() -> None:
    busy = [fake.failed("rate_limit_exceeded", "All slots are taken. Please try again in 0.005s.")]
    gateway = FakeGateway([fake.says("a", "r1"), busy, busy, fake.says("b", "r2")])
    async with gateway.running(), client_of(gateway) as client:
        await turn(client, [message("user", "one")])
        events = await turn(client, [message("user", "two")])
    waits = [event for event in events if isinstance(event, Waiting)]
    assert [wait.seconds for wait in waits] == [0.005, 0.005]
    assert [request["previous_response_id"] for request in gateway.requests[1:]] == ["r1"] * 3
    assert gateway.connections == 1


async def test_a_server_that_stays_busy_is_an_error_in_the_end() -> None:
    gateway = FakeGateway([[fake.failed("rate_limit_exceeded", "try again in 60s")]] * 3)
    async with gateway.running(), client_of(gateway) as client:
        with pytest.raises(TidemillError) as caught:
            await turn(client, [message("user", "one")])
    assert caught.value.reason is Reason.OVERLOADED
    assert len(gateway.requests) == 1 + QUICK.busy_retries


async def test_a_refused_message_leaves_the_history_and_the_connection_lives_on() -> None:
    gateway = FakeGateway([fake.says("a", "r1"), [fake.failed("invalid_prompt", "refused")], fake.says("b", "r2")])
    async with gateway.running(), client_of(gateway) as client:
        await turn(client, [message("user", "one")])
        with pytest.raises(TidemillError) as caught:
            await turn(client, [message("user", "bad")])
        await turn(client, [message("user", "two")])
    assert caught.value.reason is Reason.SAFETY_REFUSED
    assert gateway.requests[2]["input"] == [message("user", "two")]
    assert gateway.connections == 1


async def test_a_turn_that_is_given_up_closes_the_socket_and_the_next_sends_the_whole() -> None:
    gateway = FakeGateway([fake.says("a", "r1"), [fake.delta("x"), Act.HANG], fake.says("b", "r2")])
    async with gateway.running(), client_of(gateway) as client:
        await turn(client, [message("user", "one")])
        given_up = asyncio.ensure_future(turn(client, [message("user", "two")]))
        await gateway.hung.wait()
        given_up.cancel()
        await asyncio.wait({given_up})
        await asyncio.wait_for(gateway.left.wait(), 5)
        await turn(client, [message("user", "three")])
    assert [item.get("role") for item in gateway.requests[2]["input"]] == ["user", "assistant", "user", "user"]
    assert gateway.connections == 2


async def test_silence_counts_as_a_broken_socket() -> None:
    gateway = FakeGateway([[Act.HANG], fake.says("b", "r2")])
    patience = Patience(event=0.05, close=1)
    async with gateway.running(), client_of(gateway, patience) as client:
        events = await turn(client, [message("user", "one")])
    assert any(isinstance(event, Resent) and "no event" in event.why for event in events)


async def test_a_turn_reports_usage_hops_and_the_time_of_its_first_token() -> None:
    hops = {"type": "response.metadata", "hops": [{"service": "gateway", "milliseconds": 3.5}]}
    script = [{"type": "response.created"}, fake.delta(""), fake.delta("a"), hops, fake.completed("r1", 100, 64, 7)]
    gateway = FakeGateway([script])
    async with gateway.running(), client_of(gateway, hops=True) as client:
        done = (await turn(client, [message("user", "one")]))[-1]
    assert isinstance(done, TurnDone)
    assert (done.usage.input, done.usage.cached, done.usage.output) == (100, 64, 7)
    assert done.hops[0]["service"] == "gateway"
    assert done.ttft is not None and 0 < done.ttft <= done.seconds
    assert gateway.headers[0]["x-tidemill-hops"] == "1"
    assert gateway.headers[0]["Authorization"] == "Bearer key"


async def test_a_turn_without_a_token_has_no_ttft() -> None:
    gateway = FakeGateway([[{"type": "response.created"}, fake.delta(""), fake.completed("r1")]])
    async with gateway.running(), client_of(gateway) as client:
        done = (await turn(client, [message("user", "one")]))[-1]
    assert isinstance(done, TurnDone)
    assert done.ttft is None


@pytest.mark.parametrize(("status", "reason"), [(401, Reason.INVALID_API_KEY), (404, Reason.NOT_FOUND), (500, Reason.INTERNAL)])
async def test_a_refused_handshake_is_a_catalogue_error(status: int, reason: Reason) -> None:
    gateway = FakeGateway([], refusals=[status])
    async with gateway.running():
        with pytest.raises(TidemillError) as caught:
            await client_of(gateway).__aenter__()
    assert caught.value.reason is reason


async def test_no_gateway_is_a_sentence_with_advice() -> None:
    client = ResponsesClient(Endpoint("http://127.0.0.1:1"), Request("fake", TOOLS, "cache"))
    with pytest.raises(TidemillError) as caught:
        await client.__aenter__()
    assert "no gateway answers at http://127.0.0.1:1" in caught.value.sentence()


async def test_forced_output_travels_in_its_own_field() -> None:
    gateway = FakeGateway([fake.says("a", "r1")])
    async with gateway.running(), client_of(gateway) as client:
        async for _ in client.turn([message("user", "one")], forced=[fake.text_item("a")]):
            pass
    assert gateway.requests[0]["tidemill_forced_output"] == [fake.text_item("a")]
