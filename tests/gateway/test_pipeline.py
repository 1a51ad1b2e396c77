from __future__ import annotations

import threading
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.gateway.stack import Stack, make_settings, running, serving
from tests.support.fake_services import CONTEXT_LENGTH, END, FakeServices
from tidemill_common.keys import KeyRing
from tidemill_common.tokens import unpack
from tidemill_gateway import schemas

SHELL = {"type": "function", "name": "shell", "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}}}


async def test_a_request_says_how_it_is_sampled(stack: Stack) -> None:
    async with stack.socket() as socket:
        await socket.turn(input="Hi", temperature=0.7, top_p=0.9, seed=7, max_output_tokens=33)
    sampling = stack.fakes.workers[0].requests[0].sampling
    assert (round(sampling.temperature, 3), round(sampling.top_p, 3), sampling.seed, sampling.max_tokens) == (0.7, 0.9, 7, 33)
    assert unpack(sampling.end_token_ids) == [END]


async def test_the_least_top_p_stays_the_most_probable_token(stack: Stack) -> None:
    async with stack.socket() as socket:
        await socket.turn(input="Hi", temperature=1, top_p=1e-300)
    assert 0 < stack.fakes.workers[0].requests[0].sampling.top_p < 1e-5


@pytest.mark.parametrize("place", ["tools", "input"])
async def test_large_tool_lists_are_checked_beside_the_event_loop(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    schemas.problem.cache_clear()
    checked = []
    monkeypatch.setattr(Draft202012Validator, "check_schema", lambda schema: checked.append(threading.current_thread()))
    wide = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(300)}}
    tools = [{**SHELL, "parameters": wide}]
    user = {"role": "user", "content": "Hi"}
    given = {"tools": tools} if place == "tools" else {"input": [user, {"type": "additional_tools", "tools": tools}]}
    async with stack.socket() as socket:
        await socket.turn(**{"input": [user], **given})
    assert len(checked) == 1
    assert threading.main_thread() not in checked


async def test_what_it_does_not_say_is_the_operators_default(tmp_path: Path) -> None:
    async with running(tmp_path, default_temperature=0.5, default_max_output_tokens=77) as stack, stack.socket() as socket:
        await socket.turn(input="Hi")
        sampling = stack.fakes.workers[0].requests[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens, sampling.grammar) == (0.5, 1.0, 77, "")


async def test_output_never_exceeds_the_room_that_the_prompt_leaves(stack: Stack) -> None:
    async with stack.socket() as socket:
        usage = (await socket.turn(input="x" * 4000))[-1]["response"]["usage"]
    assert stack.fakes.workers[0].requests[0].sampling.max_tokens == CONTEXT_LENGTH - usage["input_tokens"]


async def test_the_context_length_is_configuration(tmp_path: Path) -> None:
    async with running(tmp_path, context_length=64) as stack, stack.socket() as socket:
        error = (await socket.turn(input="x" * 64))[-1]["error"]
        assert (error["code"], " 64" in error["message"]) == ("context_length_exceeded", True)


@pytest.mark.parametrize("small", [False, True])
async def test_a_small_models_grammar_ends_strings_and_series_of_calls(
    tmp_path: Path, fakes: FakeServices, small: bool
) -> None:
    fakes.tokenizer.require_tool_first = small
    key, _ = (ring := KeyRing()).add("default")
    ring.save(tmp_path / "keys.json")
    async with (
        serving(make_settings(tmp_path, fakes)) as (service, url),
        Stack(service, fakes, url, key, key, tmp_path).socket() as socket,
    ):
        await socket.turn(input="List", tools=[SHELL], tool_choice="required")
    grammar = fakes.workers[0].requests[0].sampling.grammar
    assert ("call)*" not in grammar) is small
    assert ("maxLength" in grammar or "{0,400}" in grammar) is small
