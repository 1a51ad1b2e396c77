from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import websockets

from tests.gateway.stack import Stack, running, text_of
from tests.support.fake_services import call_text
from tidemill_common.errors import Reason, TidemillError

HELLO = {"model": "fake", "input": "Hi"}


async def events_of(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Events of an SSE stream."""
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line[6:])


@pytest.mark.requirement("gateway:json")
async def test_post_answers_with_the_response_object(stack: Stack) -> None:
    async with stack.http() as http:
        answer = await http.post("/v1/responses", json=HELLO)
    assert answer.status_code == 200
    body = answer.json()
    assert (body["object"], body["status"], text_of(body)) == ("response", "completed", "Hello there.")
    assert body["usage"]["total_tokens"] == body["usage"]["input_tokens"] + body["usage"]["output_tokens"]


@pytest.mark.requirement("gateway:sse")
async def test_post_with_stream_answers_with_events(stack: Stack) -> None:
    async with stack.http() as http, http.stream("POST", "/v1/responses", json={**HELLO, "stream": True}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [event async for event in events_of(answer)]
    assert events[0]["type"] == "response.created"
    assert events[-1]["type"] == "response.completed"
    assert "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta") == "Hello there."


@pytest.mark.requirement("gateway:store")
async def test_a_stored_response_is_read_continued_and_deleted_by_its_tenant_alone(stack: Stack) -> None:
    async with stack.http() as http, stack.http(stack.other_key) as other:
        first = (await http.post("/v1/responses", json=HELLO)).json()
        path = f"/v1/responses/{first['id']}"
        assert (await http.get(path)).json() == first
        assert (await other.get(path)).status_code == 404
        assert (await other.delete(path)).status_code == 404
        follow = {"model": "fake", "input": "More", "previous_response_id": first["id"]}
        assert (await http.post("/v1/responses", json=follow)).json()["previous_response_id"] == first["id"]
        assert (await http.delete(path)).json() == {"id": first["id"], "object": "response", "deleted": True}
        assert (await http.get(path)).status_code == 404
        again = await http.post("/v1/responses", json=follow)
        assert (again.status_code, again.json()["error"]["code"]) == (400, "previous_response_not_found")


async def test_an_unstored_response_can_not_be_read_back(stack: Stack) -> None:
    async with stack.http() as http:
        first = (await http.post("/v1/responses", json={**HELLO, "store": False})).json()
        assert (await http.get(f"/v1/responses/{first['id']}")).status_code == 404


async def test_models_lists_the_model_for_sdks_and_for_codex(stack: Stack) -> None:
    async with stack.http() as http:
        body = (await http.get("/v1/models")).json()
    assert [entry["id"] for entry in body["data"]] == ["fake"]
    assert body["data"][0]["tidemill"]["context_length"] == 4096
    assert body["models"][0]["slug"] == "fake"


@pytest.mark.requirement("gateway:auth")
@pytest.mark.parametrize("authorization", [None, "Bearer wrong", "Bearer", "Basic abc", "Bearer tm-\xff"])
async def test_without_a_known_key_everything_is_401(stack: Stack, authorization: str | None) -> None:
    headers = {b"Authorization": authorization.encode("latin-1")} if authorization else {}
    async with httpx.AsyncClient(base_url=stack.url, trust_env=False, headers=headers) as http:
        for method, path in [("GET", "/v1/models"), ("POST", "/v1/responses"), ("GET", "/nowhere")]:
            answer = await http.request(method, path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


async def test_websocket_with_a_wrong_key_is_refused_before_the_upgrade(stack: Stack) -> None:
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with stack.socket("wrong"):
            pass
    assert refused.value.response.status_code == 401
    assert json.loads(refused.value.response.body or b"")["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(
    ("origin", "allowed"), [("http://localhost:3000", True), ("https://evil.example", False), ("null", False)]
)
async def test_browser_pages_from_elsewhere_may_not_open_a_websocket(stack: Stack, origin: str, allowed: bool) -> None:
    try:
        async with stack.socket(Origin=origin) as socket:
            assert (await socket.turn(input="Hi"))[-1]["type"] == "response.completed"
        opened = True
    except websockets.InvalidStatus as error:
        opened = False
        assert error.response.status_code == 403
    assert opened is allowed


async def test_a_foreign_host_name_is_not_answered_on_loopback(stack: Stack) -> None:
    async with stack.http() as http:
        assert (await http.get("/v1/models", headers={"Host": "evil.example"})).status_code == 400


async def test_a_new_key_works_without_a_restart(stack: Stack) -> None:
    ring = stack.service.authenticator._ring
    plain, _ = ring.add("default")
    ring.save(stack.directory / "keys.json")
    stack.service.authenticator._ring = type(ring)(ring.records[:-1])
    stack.service.authenticator._checked_at = -1e9
    async with stack.http(plain) as http:
        assert (await http.get("/v1/models")).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1/responses", 426),
        ("PUT", "/v1/responses", 404),
        ("POST", "/v1/models", 404),
        ("GET", "/v1/responses/resp_unknown", 404),
        ("DELETE", "/v1/responses/resp_unknown", 404),
    ],
)
async def test_what_is_not_served_says_so_in_json(stack: Stack, method: str, path: str, status: int) -> None:
    async with stack.http() as http:
        answer = await http.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


BAD_BODIES: dict[str, tuple[bytes, int, str]] = {
    "not JSON": (b"{", 400, "invalid_request"),
    "not UTF-8": (b"\xff\xfe", 400, "invalid_request"),
    "a list": (b"[]", 400, "invalid_request"),
    "unknown model": (b'{"model": "nope", "input": "Hi"}', 404, "model_not_found"),
    "unknown previous": (
        b'{"model": "fake", "input": "Hi", "previous_response_id": "resp_x"}',
        400,
        "previous_response_not_found",
    ),
    "too long": (json.dumps({"model": "fake", "input": "x" * 5000}).encode(), 400, "context_length_exceeded"),
    "too large": (b'{"model": "fake", "input": "' + b"x" * 70_000 + b'"}', 413, "request_too_large"),
}


@pytest.mark.requirement("gateway:bad-input")
@pytest.mark.parametrize("stream", [False, True])
async def test_bad_bodies_are_answered_by_their_status(tmp_path: Path, stream: bool) -> None:
    async with running(tmp_path, max_message_bytes=1 << 16) as stack, stack.http() as http:
        for case, (body, status, code) in BAD_BODIES.items():
            sent = body.replace(b'"input"', b'"stream": true, "input"') if stream else body
            answer = await http.post("/v1/responses", content=sent)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), case
        assert (await http.post("/v1/responses", json=HELLO)).status_code == 200


async def test_a_body_without_a_length_is_cut_off_at_the_limit(tmp_path: Path) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 10_000

    async with running(tmp_path, max_message_bytes=1 << 16) as stack, stack.http() as http:
        try:
            answer = await http.post("/v1/responses", content=endless())
            assert answer.status_code == 413
        except httpx.TransportError:
            pass  # the server may close before the client reads the answer
        assert (await http.post("/v1/responses", json=HELLO)).status_code == 200


async def test_overload_is_a_status_for_json_and_an_event_for_streams(tmp_path: Path) -> None:
    async with running(tmp_path, max_turns=1) as stack, stack.http() as http, stack.socket() as busy:
        stack.fakes.workers[0].script.pause_after = 4
        await busy.send(input="Hi")
        await busy.until("response.output_text.delta")
        answer = await http.post("/v1/responses", json=HELLO)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        async with http.stream("POST", "/v1/responses", json={**HELLO, "stream": True}) as stream:
            events = [event async for event in events_of(stream)]
        assert [event["type"] for event in events] == ["response.failed"]
        assert events[0]["response"]["error"]["code"] == "rate_limit_exceeded"
        stack.fakes.workers[0].script.resume.set()


async def test_a_failed_turn_is_an_http_error_without_a_stream(stack: Stack) -> None:
    stack.fakes.workers[0].script.fail_after = 0
    stack.fakes.workers[0].script.failure = TidemillError(Reason.MODEL_MISMATCH, "other weights")
    async with stack.http() as http:
        answer = await http.post("/v1/responses", json=HELLO)
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "model_mismatch")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_hangs_up_ends_its_turn(stack: Stack, stream: bool) -> None:
    worker = stack.fakes.workers[0]
    worker.script.pause_after = 4
    async with stack.http() as http:
        asking = asyncio.create_task(http.post("/v1/responses", json={**HELLO, "stream": stream}))
        await worker.asked.wait()
        asking.cancel()
    await asyncio.wait_for(stack.service.limits.idle(), 10)
    while worker.active:
        worker.answered.clear()
        await asyncio.wait_for(worker.answered.wait(), 10)


@pytest.mark.requirement("gateway:forced-output")
async def test_forced_output_replaces_what_is_sampled(tmp_path: Path) -> None:
    async with running(tmp_path, allow_forced_output=True) as stack, stack.http() as http:
        items = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "As told."}]}]
        body = (await http.post("/v1/responses", json={**HELLO, "tidemill_forced_output": items})).json()
        assert text_of(body) == "As told."
        assert stack.fakes.workers[0].requests[0].sampling.forced_token_ids
        assert not stack.fakes.workers[0].requests[0].sampling.grammar


@pytest.mark.requirement("gateway:scripted-alias")
async def test_a_scripted_alias_plays_its_turns(tmp_path: Path) -> None:
    call = {"type": "function_call", "name": "shell", "arguments": '{"cmd":"ls"}', "call_id": "c1"}
    done = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Two files."}]}
    scripts = tmp_path / "scripts.json"
    scripts.write_text(json.dumps({"scripted": [[call], [done]]}))
    tool = {"type": "function", "name": "shell", "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}}}
    async with running(tmp_path, allow_forced_output=True, scripts_file=scripts) as stack, stack.http() as http:
        names = [entry["id"] for entry in (await http.get("/v1/models")).json()["data"]]
        assert names == ["fake", "scripted"]
        ask = {"model": "scripted", "tools": [tool]}
        first = (await http.post("/v1/responses", json={**ask, "input": "List"})).json()
        assert [(item["type"], item["name"]) for item in first["output"]] == [("function_call", "shell")]
        output = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "a b"}
        history = [{"role": "user", "content": "List"}, *first["output"], output]
        resent = (await http.post("/v1/responses", json={**ask, "input": history})).json()
        assert text_of(resent) == "Two files."
        follow = {**ask, "input": [output], "previous_response_id": first["id"]}
        followed = (await http.post("/v1/responses", json=follow)).json()
        assert text_of(followed) == "Two files."
        over = await http.post("/v1/responses", json={**ask, "input": "x", "previous_response_id": followed["id"]})
        assert (over.status_code, over.json()["error"]["param"]) == (400, "model")


@pytest.mark.requirement("gateway:openai-sdk")
async def test_openai_sdk_websocket_sse_and_plain(stack: Stack) -> None:
    client = openai.AsyncOpenAI(
        base_url=f"{stack.url}/v1", api_key=stack.key, http_client=openai.DefaultAsyncHttpxClient(trust_env=False)
    )
    async with client.responses.connect() as connection:
        previous: str | None = None
        for number in range(3):
            extra = {"previous_response_id": previous} if previous else {}
            await connection.response.create(model="fake", input=f"Message {number}", **extra)  # type: ignore[arg-type]
            async for event in connection:
                if event.type == "response.completed":
                    assert event.response.output_text == "Hello there."
                    usage = event.response.usage
                    assert usage and (previous is None or usage.input_tokens_details.cached_tokens > 0)
                    previous = event.response.id
                    break
    stream = await client.responses.create(model="fake", input="Hi", stream=True)
    assert [event.type async for event in stream][-1] == "response.completed"
    plain = await client.responses.create(model="fake", input="Hi")
    assert plain.output_text == "Hello there."
    with pytest.raises(openai.NotFoundError):
        await client.responses.create(model="nope", input="Hi")
    await client.close()


async def test_a_tool_call_over_sse_is_done_before_the_response_is(stack: Stack) -> None:
    stack.fakes.workers[0].script.reply = lambda prompt: call_text("shell", '{"cmd": "ls"}')
    body = {**HELLO, "stream": True, "tools": [{"type": "function", "name": "shell", "parameters": {"type": "object"}}]}
    async with stack.http() as http, http.stream("POST", "/v1/responses", json=body) as answer:
        types = [event["type"] async for event in events_of(answer)]
    assert types.index("response.output_item.done") < types.index("response.completed")
