from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import websockets

from tests.gateway.stack import Stack, running, text_of
from tests.support.fake_services import END, START, call_text, encode
from tidemill.safety.v1 import safety_service_pb2 as safety
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.keys import KeyRing
from tidemill_common.tokens import unpack

SHELL = {
    "type": "function",
    "name": "shell",
    "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]},
}


async def idle(stack: Stack) -> None:
    """Wait until no worker is asked anything any more."""
    worker = stack.fakes.workers[0]
    while worker.active:
        worker.answered.clear()
        await asyncio.wait_for(worker.answered.wait(), 10)


@pytest.mark.requirement("gateway:websocket-turn")
async def test_turn_streams_text_and_completes_with_numbered_events(stack: Stack) -> None:
    async with stack.socket() as socket:
        events = await socket.turn(input="Hi")
    assert [event["type"] for event in events][:2] == ["response.created", "response.in_progress"]
    assert events[-1]["type"] == "response.completed"
    assert text_of(events[-1]["response"]) == "Hello there."
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@pytest.mark.requirement("gateway:delta-turn")
async def test_a_turn_that_follows_another_sends_only_what_is_new(stack: Stack) -> None:
    async with stack.socket() as socket:
        first = (await socket.turn(input="Tell me about tides. " * 10, instructions="Be brief."))[-1]["response"]
        second = (await socket.turn(input="And now?", instructions="Be brief.", previous_response_id=first["id"]))[-1][
            "response"
        ]
    render = stack.fakes.tokenizer.requests[-1]
    assert render.state
    assert [item.WhichOneof("kind") for item in render.items] == ["model_output", "message"]
    generate = stack.fakes.workers[0].requests[-1]
    assert generate.prefix_blocks > 0
    assert len(unpack(generate.token_ids)) < 16 + len(encode("\nuser\nAnd now?\n\nassistant\n")) + 4
    assert second["usage"]["input_tokens_details"]["cached_tokens"] >= first["usage"]["total_tokens"] - 16


@pytest.mark.requirement("gateway:cached-tokens")
async def test_cached_tokens_are_those_that_the_worker_reports(stack: Stack) -> None:
    async with stack.socket() as socket:
        first = (await socket.turn(input="x" * 200))[-1]["response"]["usage"]
        again = (await socket.turn(input="x" * 200))[-1]["response"]["usage"]
    assert first["input_tokens_details"]["cached_tokens"] == 0
    assert again["input_tokens_details"]["cached_tokens"] == again["input_tokens"] // 16 * 16
    assert again["total_tokens"] == again["input_tokens"] + again["output_tokens"]
    assert again["output_tokens_details"] == {"reasoning_tokens": 0}


async def test_sampled_ids_enter_the_next_prompt_unchanged(stack: Stack) -> None:
    async with stack.socket() as socket:
        first = (await socket.turn(input="Hi"))[-1]["response"]
        await socket.turn(input="Again", previous_response_id=first["id"])
    sampled = [*encode("Hello there."), END]
    assert unpack(stack.fakes.tokenizer.requests[-1].items[0].model_output.token_ids) == sampled


async def test_changed_tools_render_the_whole_conversation_anew_with_sampled_ids(stack: Stack) -> None:
    async with stack.socket() as socket:
        first = (await socket.turn(input="Hi", tools=[SHELL]))[-1]["response"]
        second = (await socket.turn(input="Again", previous_response_id=first["id"]))[-1]
    assert second["type"] == "response.completed"
    render = stack.fakes.tokenizer.requests[-1]
    assert not render.state
    assert [item.WhichOneof("kind") for item in render.items] == ["message", "model_output", "message"]
    assert not render.tools


@pytest.mark.requirement("gateway:history-as-text")
async def test_a_history_resent_as_text_keeps_its_sampled_ids(stack: Stack) -> None:
    async with stack.socket() as socket:
        first = (await socket.turn(input="Hi"))[-1]["response"]
        history = [{"role": "user", "content": "Hi"}, *first["output"], {"role": "user", "content": "More"}]
        second = (await socket.turn(input=history))[-1]["response"]
    kinds = [item.WhichOneof("kind") for item in stack.fakes.tokenizer.requests[-1].items]
    assert kinds == ["message", "model_output", "message"]
    assert stack.fakes.router.requests[-1].parent_blocks == 0
    assert second["usage"]["input_tokens_details"]["cached_tokens"] >= first["usage"]["total_tokens"] - 16


async def test_another_tenant_resending_the_same_text_gets_no_ids_and_no_cache(stack: Stack) -> None:
    async with stack.socket() as socket:
        first = (await socket.turn(input="Hi"))[-1]["response"]
    history = [{"role": "user", "content": "Hi"}, *first["output"], {"role": "user", "content": "More"}]
    async with stack.socket(stack.other_key) as socket:
        other = (await socket.turn(input=history))[-1]["response"]
    assert other["usage"]["input_tokens_details"]["cached_tokens"] == 0
    kinds = [item.WhichOneof("kind") for item in stack.fakes.tokenizer.requests[-1].items]
    assert kinds == ["message", "message", "message"]


async def test_tool_call_and_its_output_go_on_as_a_delta(stack: Stack) -> None:
    stack.fakes.workers[0].script.reply = lambda prompt: (
        "Done." if "file.txt" in prompt else call_text("shell", '{"cmd": "ls"}')
    )
    async with stack.socket() as socket:
        events = await socket.turn(input="List", tools=[SHELL])
        call = next(event["item"] for event in events if event["type"] == "response.output_item.done")
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "file.txt"}
        first = events[-1]["response"]
        last = (await socket.turn(input=[output], tools=[SHELL], previous_response_id=first["id"]))[-1]["response"]
    assert (call["type"], call["name"], json.loads(call["arguments"])) == ("function_call", "shell", {"cmd": "ls"})
    assert text_of(last) == "Done."
    assert stack.fakes.workers[0].requests[0].sampling.grammar


@pytest.mark.requirement("gateway:generate-false")
async def test_generate_false_completes_at_once_and_its_prompt_is_computed_ahead(stack: Stack) -> None:
    instructions = "You are helpful. " * 20
    async with stack.socket() as socket:
        warm = (await socket.turn(input=[], instructions=instructions, generate=False))[-1]
        assert warm["type"] == "response.completed"
        assert warm["response"]["output"] == []
        turn = (await socket.turn(input="Hi", instructions=instructions, previous_response_id=warm["response"]["id"]))[-1]
    worker = stack.fakes.workers[0]
    assert worker.requests[0].sampling.max_tokens == 0
    assert turn["response"]["usage"]["input_tokens_details"]["cached_tokens"] >= 320
    assert stack.fakes.tokenizer.requests[0].open_turn is False


async def test_generate_false_is_acknowledged_while_no_worker_is_there(stack: Stack) -> None:
    stack.fakes.router.workers = []
    async with stack.socket() as socket:
        events = await socket.turn(input="Hi", generate=False)
    assert [event["type"] for event in events] == ["response.created", "response.in_progress", "response.completed"]


@pytest.mark.requirement("gateway:limit-incomplete")
async def test_output_limit_ends_in_response_incomplete_and_can_be_continued(stack: Stack) -> None:
    async with stack.socket() as socket:
        events = await socket.turn(input="Hi", max_output_tokens=5)
        cut = events[-1]
        assert (cut["type"], cut["response"]["incomplete_details"]) == ("response.incomplete", {"reason": "max_output_tokens"})
        assert text_of(cut["response"]) == "Hello"
        assert (await socket.turn(input="Go on", previous_response_id=cut["response"]["id"]))[-1][
            "type"
        ] == "response.completed"


async def test_responses_are_served_in_order_when_sent_at_once(stack: Stack) -> None:
    stack.fakes.workers[0].script.reply = lambda prompt: prompt.split("user\n")[-1].split("<|im_end|>")[0]
    async with stack.socket() as socket:
        for number in range(4):
            await socket.send(input=f"message {number}")
        answers = [text_of((await socket.ending())[-1]["response"]) for _ in range(4)]
    assert answers == [f"message {number}" for number in range(4)]


async def test_stream_id_is_echoed_and_hops_name_every_service(stack: Stack) -> None:
    async with stack.socket(x_tidemill_hops="1") as socket:
        events = await socket.turn(input="Hi", stream_id="lane")
    assert {event["stream_id"] for event in events} == {"lane"}
    metadata = events[-2]
    assert metadata["type"] == "response.metadata"
    assert {hop["service"] for hop in metadata["hops"]} == {"gateway", "tokenizer", "safety", "router", "decode"}
    assert all(hop["node"] and hop["node_type"] and hop["pid"] and hop["milliseconds"] >= 0 for hop in metadata["hops"])


BAD_FRAMES: dict[str, tuple[str | bytes | dict[str, Any], str, str | None]] = {
    "not JSON": ("{", "invalid_request", None),
    "not an object": ("[1]", "invalid_request", None),
    "no type": ("{}", "invalid_request", "type"),
    "NaN": ('{"type": "response.create", "temperature": NaN}', "invalid_request", None),
    "deep nesting": ("[" * 100_000, "invalid_request", None),
    "binary": (b"{}", "invalid_request", None),
    "no model": ({}, "invalid_request", "model"),
    "unknown model": ({"model": "gpt-nope"}, "model_not_found", "model"),
    "wrong input": ({"model": "fake", "input": 3}, "invalid_request", "input"),
    "image": (
        {"model": "fake", "input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}]},
        "unsupported_input",
        "input[0].content[0]",
    ),
    "unknown item": ({"model": "fake", "input": [{"type": "teapot"}]}, "invalid_request", "input[0].type"),
    "bad tool schema": (
        {"model": "fake", "input": "Hi", "tools": [{"type": "function", "name": "f", "parameters": {"type": "nope"}}]},
        "invalid_tools",
        None,
    ),
    "unknown previous": (
        {"model": "fake", "input": "Hi", "previous_response_id": "resp_nope"},
        "previous_response_not_found",
        "previous_response_id",
    ),
    "forced output": (
        {"model": "fake", "input": "Hi", "tidemill_forced_output": []},
        "forced_output_disabled",
        "tidemill_forced_output",
    ),
    "too long": ({"model": "fake", "input": "x" * 5000}, "context_length_exceeded", "input"),
}


@pytest.mark.requirement("gateway:bad-input")
async def test_bad_input_is_answered_by_error_events_and_the_connection_lives(stack: Stack) -> None:
    async with stack.socket() as socket:
        for case, (frame, code, param) in BAD_FRAMES.items():
            await socket.connection.send(json.dumps({"type": "response.create", **frame}) if isinstance(frame, dict) else frame)
            event = await socket.event()
            assert (event["type"], event["status"], event["error"]["code"]) == ("error", 400, code), case
            assert event["error"]["param"] == param or not param, case
            assert event["error"]["message"], case
        assert (await socket.turn(input="Hi"))[-1]["type"] == "response.completed"
    assert stack.service.limits.turns == 0


@pytest.mark.requirement("gateway:context-overflow")
async def test_context_overflow_names_the_prompt_the_limit_and_what_helps(stack: Stack) -> None:
    async with stack.socket() as socket:
        error = (await socket.turn(input="x" * 5000))[-1]["error"]
    assert "4096" in error["message"]
    assert "50" in error["message"]
    assert "--context-length" in error["message"]
    assert "leaner" in error["message"]


async def test_unknown_frame_types_are_ignored(stack: Stack) -> None:
    async with stack.socket() as socket:
        await socket.connection.send('{"type": "response.processed", "response_id": "resp_1"}')
        assert (await socket.turn(input="Hi"))[0]["type"] == "response.created"


@pytest.mark.requirement("gateway:oversized-frame")
async def test_oversized_message_gets_an_error_event_and_close_1009(tmp_path: Path) -> None:
    async with running(tmp_path, max_message_bytes=4096) as stack, stack.socket() as socket:
        assert socket.connection.response is not None
        assert socket.connection.response.headers["x-codex-websocket-max-message-bytes"] == "4096"
        await socket.send(input="x" * 1_000_000)
        event = await socket.event()
        assert (event["type"], event["error"]["code"]) == ("error", "request_too_large")
        with pytest.raises(websockets.ConnectionClosedError):
            await socket.event()
        assert socket.connection.close_code == 1009


async def test_another_tenants_response_is_unknown(stack: Stack) -> None:
    async with stack.socket() as socket:
        first = (await socket.turn(input="Hi"))[-1]["response"]
    async with stack.socket(stack.other_key) as socket:
        error = (await socket.turn(input="Hi", previous_response_id=first["id"]))[-1]
    assert error["error"]["code"] == "previous_response_not_found"


async def test_unstored_response_is_found_on_its_connection_even_when_memory_is_full(tmp_path: Path) -> None:
    async with running(tmp_path, conversation_bytes=1 << 16) as stack, stack.socket() as socket:
        first = (await socket.turn(input="Hi", store=False))[-1]["response"]
        async with stack.socket() as other:
            for number in range(8):
                await other.turn(input=f"{number} ", metadata={"padding": "y" * 10_000}, store=False)
        assert stack.service.memory.get("default", first["id"]) is None
        second = (await socket.turn(input="More", previous_response_id=first["id"], store=False))[-1]
        assert second["type"] == "response.completed"
        assert stack.service.memory.bytes <= 1 << 16


# ---- safety


@pytest.mark.requirement("gateway:safety-refusal")
async def test_refused_input_ends_in_response_failed_with_invalid_prompt(stack: Stack) -> None:
    async with stack.socket() as socket:
        last = (await socket.turn(input="FORBIDDEN"))[-1]
        assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "invalid_prompt")
        await idle(stack)
        assert (await socket.turn(input="Hi"))[-1]["type"] == "response.completed"


async def test_refused_output_cuts_the_stream(tmp_path: Path) -> None:
    async with running(tmp_path, safety_window=16) as stack, stack.socket() as socket:
        script = stack.fakes.workers[0].script
        script.reply = lambda prompt: "All is well so far. FORBIDDEN words. " + "And more. " * 10
        script.pause_after = 60
        events = await socket.turn(input="Hi")
        assert events[-1]["response"]["error"]["code"] == "invalid_prompt"
        assert any(event["type"] == "response.output_text.delta" for event in events)
        await idle(stack)


async def test_a_word_split_over_two_windows_is_seen(tmp_path: Path) -> None:
    async with running(tmp_path, safety_window=16) as stack, stack.socket() as socket:
        stack.fakes.workers[0].script.reply = lambda prompt: "0123456789ABFORBIDDEN and so on"
        assert (await socket.turn(input="Hi"))[-1]["type"] == "response.failed"


async def test_a_word_split_over_two_turns_is_seen(stack: Stack) -> None:
    stack.fakes.workers[0].script.reply = lambda prompt: ""
    async with stack.socket() as socket:
        first = (await socket.turn(input="FORBID"))[-1]
        assert first["type"] == "response.completed"
        second = (await socket.turn(input="DEN", previous_response_id=first["response"]["id"]))[-1]
    assert second["type"] == "response.failed"


@pytest.mark.requirement("gateway:tool-call-waits")
async def test_a_tool_call_waits_for_the_verdict_on_its_arguments(stack: Stack) -> None:
    stack.fakes.workers[0].script.reply = lambda prompt: call_text("shell", '{"cmd": "ls"}')
    gate = stack.fakes.safety.gate(safety.DIRECTION_TOOL_ARGUMENTS)
    async with stack.socket() as socket:
        await socket.send(input="List", tools=[SHELL])
        await socket.until("response.function_call_arguments.delta")
        done = asyncio.create_task(socket.until("response.output_item.done", "response.completed"))
        await stack.fakes.safety.asked[safety.DIRECTION_TOOL_ARGUMENTS].wait()
        assert not done.done()
        gate.set()
        assert (await done)["item"]["name"] == "shell"


async def test_refused_arguments_never_reach_the_client_as_a_call(stack: Stack) -> None:
    stack.fakes.workers[0].script.reply = lambda prompt: call_text("shell", '{"cmd": "FORBIDDEN"}')
    async with stack.socket() as socket:
        events = await socket.turn(input="List", tools=[SHELL])
    assert events[-1]["response"]["error"]["code"] == "invalid_prompt"
    assert "response.output_item.done" not in {event["type"] for event in events}


@pytest.mark.requirement("gateway:hold-mode")
async def test_hold_mode_releases_nothing_before_the_verdict(tmp_path: Path) -> None:
    async with running(tmp_path, safety_mode="hold") as stack, stack.socket() as socket:
        gate = stack.fakes.safety.gate(safety.DIRECTION_INPUT)
        await socket.send(input="Hi")
        await socket.until("response.in_progress")
        ending = asyncio.create_task(socket.ending())
        await stack.fakes.workers[0].answered.wait()
        await stack.fakes.safety.asked[safety.DIRECTION_INPUT].wait()
        assert len(socket.events) == 2
        gate.set()
        assert text_of((await ending)[-1]["response"]) == "Hello there."


async def test_hold_mode_withholds_refused_output_altogether(tmp_path: Path) -> None:
    async with running(tmp_path, safety_mode="hold") as stack, stack.socket() as socket:
        stack.fakes.workers[0].script.reply = lambda prompt: "Some FORBIDDEN words"
        events = await socket.turn(input="Hi")
    assert [event["type"] for event in events] == ["response.created", "response.in_progress", "response.failed"]


@pytest.mark.requirement("gateway:safety-fails-closed")
async def test_without_a_verdict_the_turn_fails(stack: Stack) -> None:
    stack.fakes.safety.fails = True
    async with stack.socket() as socket:
        last = (await socket.turn(input="Hi"))[-1]
    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "safety_unavailable")


async def test_a_silent_safety_service_fails_the_turn_within_its_time(tmp_path: Path) -> None:
    async with running(tmp_path, safety_seconds=0.2) as stack, stack.socket() as socket:
        stack.fakes.safety.gate(safety.DIRECTION_INPUT)
        last = (await socket.turn(input="Hi"))[-1]
    assert last["response"]["error"]["code"] == "safety_unavailable"


# ---- workers


@pytest.mark.requirement("gateway:retry-before-first-token")
async def test_worker_lost_before_the_first_token_is_replaced_unseen(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2) as stack, stack.socket() as socket:
        stack.fakes.workers[0].script.fail_after = 0
        last = (await socket.turn(input="Hi"))[-1]
        assert text_of(last["response"]) == "Hello there."
        assert [len(worker.requests) for worker in stack.fakes.workers] == [1, 1]


@pytest.mark.requirement("gateway:resume-after-first-token")
async def test_worker_lost_in_mid_answer_is_continued_on_another(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2) as stack, stack.socket() as socket:
        stack.fakes.workers[0].script.fail_after = 8
        events = await socket.turn(input="Hi")
        assert text_of(events[-1]["response"]) == "Hello there."
        assert events[-1]["response"]["usage"]["output_tokens"] == len("Hello there.") + 1
        assert stack.fakes.workers[1].requests[0].resumed_tokens == 8


async def test_worker_lost_with_no_other_fails_with_a_typed_error(stack: Stack) -> None:
    stack.fakes.workers[0].script.fail_after = 4
    async with stack.socket() as socket:
        last = (await socket.turn(input="Hi"))[-1]
        assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "worker_lost")
        stack.fakes.workers[0].script.fail_after = None
        assert (await socket.turn(input="Hi"))[-1]["type"] == "response.completed"


async def test_the_restarted_worker_finishes_the_turn(tmp_path: Path) -> None:
    async with running(tmp_path, recover_seconds=10) as stack, stack.socket() as socket:
        stack.fakes.workers[0].script.fail_after = 4
        await socket.send(input="Hi")
        await socket.until("response.output_text.delta")
        while len(stack.fakes.router.requests) < 2:
            stack.fakes.router.changed.clear()
            await stack.fakes.router.changed.wait()
        await stack.fakes.add_worker("decode-0", epoch=2)
        assert text_of((await socket.ending())[-1]["response"]) == "Hello there."


@pytest.mark.requirement("gateway:prefix-unknown")
async def test_a_lost_prefix_is_answered_by_the_whole_prompt_once(stack: Stack) -> None:
    worker = stack.fakes.workers[0]
    async with stack.socket() as socket:
        first = (await socket.turn(input="x" * 100))[-1]["response"]
        held, stack.fakes.router._held = stack.fakes.router._held, lambda *_: 6  # type: ignore[method-assign]
        worker.forget()
        last = (await socket.turn(input="More", previous_response_id=first["id"]))[-1]
        stack.fakes.router._held = held  # type: ignore[method-assign]
    assert text_of(last["response"]) == "Hello there."
    assert [request.prefix_blocks for request in worker.requests] == [0, 6, 0]
    assert unpack(worker.requests[-1].token_ids)[:1] == [START]


async def test_overloaded_workers_tell_the_client_to_try_again(stack: Stack) -> None:
    script = stack.fakes.workers[0].script
    script.fail_after, script.failure = 0, TidemillError(Reason.OVERLOADED, "too many sequences")
    async with stack.socket() as socket:
        error = (await socket.turn(input="Hi"))[-1]["response"]["error"]
    assert error["code"] == "rate_limit_exceeded"
    assert "try again in 1s" in error["message"]


@pytest.mark.requirement("gateway:back-pressure")
async def test_above_the_turn_limit_a_turn_is_told_to_try_again(tmp_path: Path) -> None:
    async with running(tmp_path, max_turns=1) as stack, stack.socket() as busy, stack.socket() as socket:
        stack.fakes.workers[0].script.pause_after = 4
        await busy.send(input="Hi")
        await busy.until("response.output_text.delta")
        last = (await socket.turn(input="Hi"))[-1]
        assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "rate_limit_exceeded")
        stack.fakes.workers[0].script.resume.set()
        assert (await busy.ending())[-1]["type"] == "response.completed"


async def test_mismatched_block_size_is_refused_loudly(stack: Stack) -> None:
    stack.fakes.router.block_size = 32
    async with stack.socket() as socket:
        error = (await socket.turn(input="Hi"))[-1]["response"]["error"]
    assert error["code"] == "model_mismatch"
    assert "TIDEMILL_GATEWAY_BLOCK_SIZE" in error["message"]


@pytest.mark.requirement("gateway:turn-deadline")
async def test_a_turn_ends_at_its_deadline(tmp_path: Path) -> None:
    async with running(tmp_path, turn_seconds=1) as stack, stack.socket() as socket:
        stack.fakes.workers[0].script.pause_after = 4
        last = (await socket.turn(input="Hi"))[-1]
        assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "deadline_exceeded")
        await idle(stack)


async def test_a_broken_tokenizer_is_a_failed_response_that_clients_retry(stack: Stack) -> None:
    stack.fakes.tokenizer.broken = TidemillError(Reason.INTERNAL, "a bug")
    async with stack.socket() as socket:
        last = (await socket.turn(input="Hi"))[-1]
    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "server_error")


# ---- life of a connection


def _of_grpc_server(task: asyncio.Task[Any]) -> bool:
    return "AioServer" in repr(task)


@pytest.mark.requirement("gateway:no-leaks")
async def test_clients_that_vanish_leave_no_task_turn_or_worker_call(stack: Stack) -> None:
    async with stack.socket() as warm:
        await warm.turn(input="Hi")
    before = asyncio.all_tasks()
    stack.fakes.workers[0].script.pause_after = 4
    for _ in range(5):
        async with stack.socket() as socket:
            await socket.send(input="Hi")
            await socket.until("response.output_text.delta")
            socket.connection.transport.abort()
    await asyncio.wait_for(stack.service.limits.idle(), 10)
    await idle(stack)
    assert (stack.service.limits.turns, stack.service.limits.connections) == (0, 0)
    left = {task for task in asyncio.all_tasks() - before if not _of_grpc_server(task)}
    if left:
        _, left = await asyncio.wait(left, timeout=10)
    assert not left


@pytest.mark.requirement("gateway:keep-alive")
async def test_long_silence_is_broken_by_events(tmp_path: Path) -> None:
    async with running(tmp_path, keep_alive_seconds=0.05) as stack, stack.socket() as socket:
        stack.fakes.workers[0].script.pause_after = 4
        await socket.send(input="Hi")
        await socket.until("response.output_text.delta")
        await socket.until("response.in_progress")
        await socket.until("response.in_progress")
        stack.fakes.workers[0].script.resume.set()
        last = (await socket.ending())[-1]
        assert last["type"] == "response.completed"
        assert [event["sequence_number"] for event in socket.events] == list(range(len(socket.events)))


@pytest.mark.requirement("gateway:drain")
async def test_drain_lets_the_turn_end_and_then_asks_to_reconnect(stack: Stack) -> None:
    async with stack.socket() as socket, stack.socket() as resting:
        script = stack.fakes.workers[0].script
        script.pause_after = 4
        await socket.send(input="Hi")
        await socket.until("response.output_text.delta")
        draining = asyncio.create_task(stack.service.drain())
        goodbye = await resting.event()
        assert (goodbye["type"], goodbye["error"]["code"]) == ("error", "websocket_connection_limit_reached")
        script.resume.set()
        assert (await socket.ending())[-1]["type"] == "response.completed"
        assert (await socket.event())["error"]["code"] == "websocket_connection_limit_reached"
        with pytest.raises(websockets.ConnectionClosedOK):
            await socket.event()
        assert socket.connection.close_code == 1001
        await draining


async def test_an_old_connection_is_asked_to_reconnect_between_responses(tmp_path: Path) -> None:
    async with running(tmp_path, connection_seconds=0.2) as stack, stack.socket() as socket:
        assert (await socket.event())["error"]["code"] == "websocket_connection_limit_reached"


async def test_a_client_that_reads_nothing_is_cut_off(tmp_path: Path) -> None:
    async with running(tmp_path, send_seconds=0.3, max_message_bytes=1 << 16) as stack:
        stack.fakes.workers[0].script.reply = lambda prompt: "x" * 3500
        stack.fakes.workers[0].script.chunk = 1
        async with stack.socket() as socket:
            socket.connection.transport.pause_reading()
            for _ in range(8):
                await socket.send(input="Hi", metadata={"padding": "y" * 20_000})
            await asyncio.wait_for(stack.service.limits.idle(), 30)
            socket.connection.transport.abort()
        await idle(stack)


async def test_a_key_revoked_while_connected_starts_no_further_turn(stack: Stack) -> None:
    authenticator = stack.service.authenticator
    async with stack.socket() as socket:
        assert (await socket.turn(input="Hi"))[-1]["type"] == "response.completed"
        ring = KeyRing.load(stack.directory / "keys.json")
        ring.revoke(ring.records[0].id)
        ring.save(stack.directory / "keys.json")
        authenticator._checked_at = -1e9
        refused = (await socket.turn(input="Hi"))[-1]
    assert refused["error"]["code"] == "invalid_api_key"
