"""What killing each process does, while a turn runs and after it.

Each test kills with SIGKILL at a moment that an event marks: the prompt half computed, the first text, a call in flight to a
process that is frozen before. Whatever dies, nothing stays in use (the fixtures check), and the next turn is served.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosedError

from tests.e2e.client import Client, Turn, websocket
from tests.e2e.greedy import Greedy, Reference
from tests.e2e.stack import RECOVER_SECONDS, Stack
from tests.e2e.task import call, running, says, trajectory
from tests.support.waiting import until
from tidemill_common.digests import DEFAULT_BLOCK_SIZE

pytestmark = [pytest.mark.stack, pytest.mark.model, pytest.mark.timeout(900)]

LONG = "".join(f"Entry {n}: at bridge {n} the tide turned and the mill ground flour for the town. " for n in range(30))
LONG_QUESTION = f"{LONG}\n\nSay in your own words what the entries are about."
STORY = "Tell me a long story about a mill that is driven by the tide."
ANSWER, STORY_LIMIT = 16, 48
WORDS = " ".join(f"word{n}" for n in range(40))
PENDING = "tidemill_worker_pending_prefill_tokens"
FALLBACKS = "tidemill_decode_prefill_fallbacks_total"
TRANSFERRED = "tidemill_worker_transferred_tokens_total"
REROUTED = "tidemill_gateway_rerouted_total"


@pytest.fixture(scope="module")
def story(greedy: Greedy) -> Reference:
    """The story as transformers tells it."""
    return greedy.answer(STORY, STORY_LIMIT)


async def begin_story(client: Client, **fields: object) -> list[dict[str, object]]:
    """Ask for the story; events up to its first words."""
    await client.ask(STORY, max_output_tokens=STORY_LIMIT, **fields)
    return await client.until_text()


def covers(turn: Turn, before: Turn) -> bool:
    return turn.cached > before.tokens - DEFAULT_BLOCK_SIZE - 1


@pytest.mark.requirement("loss:prefill")
async def test_a_prefill_worker_that_dies_in_mid_transfer_costs_time_and_not_the_turn(stack: Stack, greedy: Greedy) -> None:
    wanted = greedy.answer(LONG_QUESTION, ANSWER)
    fallbacks, transferred = await stack.metric("decode", FALLBACKS), await stack.metric("decode", TRANSFERRED)

    async def half_computed() -> bool:
        return 128 < await stack.metric("prefill", PENDING) < wanted.prompt_tokens - 128

    async with websocket(stack) as client:
        await client.ask(LONG_QUESTION, max_output_tokens=ANSWER)
        await until(half_computed, RECOVER_SECONDS)
        killed = stack.kill("prefill")
        turn = await client.rest()
    assert turn.answered and wanted.agrees(turn.text), turn.events[-1]
    assert "prefill" not in turn.hops
    assert await stack.metric("decode", FALLBACKS) == fallbacks + 1
    assert 0 < await stack.metric("decode", TRANSFERRED) - transferred < wanted.prompt_tokens
    await stack.recovered(killed)
    async with websocket(stack) as client:
        again = await client.turn(LONG[len(LONG) // 2 :], max_output_tokens=4)
    assert again.hops["prefill"] == stack.entry("prefill").pid


@pytest.mark.requirement("loss:decode")
async def test_an_answer_waits_for_the_only_decode_worker_to_come_back(stack: Stack, story: Reference) -> None:
    async with websocket(stack) as client:
        events = await begin_story(client)
        killed = stack.kill("decode")
        turn = await client.rest(events)
    assert turn.answered and story.agrees(turn.text), turn.events[-1]
    assert turn.hops["decode"] == stack.entry("decode").pid != killed["decode"]
    await stack.recovered(killed)


@pytest.mark.requirement("loss:bystander")
@pytest.mark.parametrize("name", ["tokenizer", "router"])
async def test_a_running_answer_needs_neither_tokenizer_nor_router(stack: Stack, story: Reference, name: str) -> None:
    async with websocket(stack) as client:
        events = await begin_story(client)
        killed = stack.kill(name)
        turn = await client.rest(events)
        assert turn.answered and story.agrees(turn.text), turn.events[-1]
        await stack.recovered(killed)
        again = await client.turn("Go on.", max_output_tokens=ANSWER, previous_response_id=turn.id)
    assert again.answered
    assert covers(again, turn), "workers tell a new router what they hold"


@pytest.mark.requirement("loss:called")
@pytest.mark.parametrize("name", ["tokenizer", "router"])
async def test_a_turn_that_calls_tokenizer_or_router_as_it_dies_fails_in_words(stack: Stack, name: str) -> None:
    async with websocket(stack) as client:
        before = await client.turn("Name a colour.", max_output_tokens=ANSWER)
        stack.signal(name, signal.SIGSTOP)
        await client.ask("Name a colour that is not it.", previous_response_id=before.id)
        if name == "router":
            await client.event()
        await until(lambda: _one_turn(stack))
        killed = stack.kill(name)
        turn = await client.rest()
        assert (turn.ending, turn.error["code"]) == ("response.failed", "service_unavailable")
        assert name in turn.error["message"]
        await stack.recovered(killed)
        again = await client.turn("Name another.", max_output_tokens=ANSWER, previous_response_id=before.id)
    assert again.answered


@pytest.mark.requirement("loss:safety")
async def test_without_a_verdict_nothing_passes(stack: Stack) -> None:
    async with websocket(stack) as client:
        stack.signal("safety", signal.SIGSTOP)
        events = await begin_story(client)
        killed = stack.kill("safety")
        turn = await client.rest(events)
        assert (turn.ending, turn.error["code"]) == ("response.failed", "safety_unavailable")
        await stack.recovered(killed)
        again = await client.turn(STORY, max_output_tokens=ANSWER)
    assert again.answered


@pytest.mark.requirement("loss:gateway")
async def test_the_gateways_death_closes_the_socket_and_its_store_remembers(stack: Stack) -> None:
    async with websocket(stack) as client:
        first = await client.turn("Name a colour.", max_output_tokens=ANSWER)
        await begin_story(client, previous_response_id=first.id)
        killed = stack.kill("gateway")
        with pytest.raises(ConnectionClosedError) as closed:
            await client.rest()
    assert closed.value.rcvd is None
    await stack.recovered(killed)
    async with websocket(stack) as client:
        again = await client.turn("Name another.", max_output_tokens=ANSWER, previous_response_id=first.id)
    assert again.answered
    assert covers(again, first)


@pytest.mark.requirement("loss:gateway")
async def test_the_harness_sends_the_whole_once_to_a_gateway_that_came_back_and_its_task_goes_on(
    stack: Stack, tmp_path: Path
) -> None:
    forced = trajectory(tmp_path / "turns.json", call("echo seen"), says(WORDS))
    async with running(stack, tmp_path, "Look, then tell.", "--forced-trajectory", forced) as task:
        await task.until("tool_finished")
        await task.until("text_delta")
        killed = stack.kill("gateway")
        assert await task.end() == 0
    assert [event["why"] for event in task.of("resent")] == ["the connection broke (no close frame)"]
    assert task.of("task_finished")[0]["answer"] == WORDS
    assert len(task.of("tool_finished")) == 1
    await stack.recovered(killed)


@pytest.mark.requirement("loss:decode")
async def test_an_answer_goes_on_with_the_same_tokens_on_the_other_decode_worker(pair: Stack, story: Reference) -> None:
    async with websocket(pair) as client:
        events = await begin_story(client)
        serving = await _serving(pair)
        killed = pair.kill(serving)
        turn = await client.rest(events)
    assert turn.answered and story.agrees(turn.text), turn.events[-1]
    assert await pair.metric("gateway", REROUTED, when="after_first_token") >= 1
    assert pair.pids("decode")[turn.hops["decode"]] != serving
    await pair.recovered(killed)


@pytest.mark.requirement("loss:no-worker")
async def test_a_turn_without_any_worker_left_fails_in_words_and_the_connection_lives(pair: Stack) -> None:
    async with websocket(pair) as client:
        first = await client.turn("Name a colour.", max_output_tokens=ANSWER)
        events = await begin_story(client)
        killed = pair.kill("decode-0", "decode-1")
        turn = await client.rest(events)
        assert (turn.ending, turn.error["code"]) == ("response.failed", "worker_lost")
        assert "send the turn again" in turn.error["message"]
        await pair.recovered(killed)
        again = await client.turn("Name another.", max_output_tokens=ANSWER, previous_response_id=first.id)
    assert again.answered


async def _serving(stack: Stack) -> str:
    names = list(stack.pids("decode").values())
    busy = await asyncio.gather(*(stack.sequences(name) for name in names))
    return next(name for name, (sequences, _) in zip(names, busy, strict=True) if sequences)


async def _one_turn(stack: Stack) -> bool:
    return await stack.turns() == 1
