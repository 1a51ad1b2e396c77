"""A conversation's first turns, through every process."""

from __future__ import annotations

import pytest

from tests.e2e.client import Turn, sse_turn, websocket
from tests.e2e.greedy import Greedy
from tests.e2e.stack import SERVICES, Stack
from tidemill_common.digests import DEFAULT_BLOCK_SIZE

pytestmark = [pytest.mark.stack, pytest.mark.model, pytest.mark.timeout(600)]

NOTES = "".join(f"Note {n}: the mill at bridge {n} grinds when the tide turns. " for n in range(24))
QUESTION = f"{NOTES}\n\nWhat is the capital of France?"
LIMIT = 24


def covers(turn: Turn, before: Turn) -> bool:
    """Whether the cache served everything up to the end of the turn before, but for a part of a block."""
    return turn.cached > before.tokens - DEFAULT_BLOCK_SIZE - 1


@pytest.mark.requirement("turn:six-processes")
@pytest.mark.requirement("turn:equals-transformers")
async def test_a_long_first_turn_passes_six_processes_and_answers_as_transformers_does(stack: Stack, greedy: Greedy) -> None:
    wanted = greedy.answer(QUESTION, LIMIT)
    before = await stack.metric("decode", "tidemill_worker_transferred_tokens_total")
    async with websocket(stack) as client:
        turn = await client.turn(QUESTION, max_output_tokens=LIMIT)
    assert turn.answered
    assert sorted(turn.hops) == sorted(SERVICES)
    assert sorted(turn.hops.values()) == sorted(each["pid"] for each in stack.status()["services"])
    assert len(set(turn.hops.values())) == len(SERVICES)
    assert turn.input_tokens == wanted.prompt_tokens > 256
    assert wanted.agrees(turn.text), (turn.text, wanted)
    transferred = await stack.metric("decode", "tidemill_worker_transferred_tokens_total") - before
    assert 256 < transferred <= turn.input_tokens


@pytest.mark.requirement("turn:cached-tokens")
async def test_a_second_turn_sends_what_is_new_and_is_computed_where_the_first_was(stack: Stack) -> None:
    async with websocket(stack) as client:
        first = await client.turn(QUESTION, max_output_tokens=LIMIT)
        second = await client.turn("And of Italy?", max_output_tokens=LIMIT, previous_response_id=first.id)
    assert second.answered
    assert covers(second, first)
    assert "prefill" not in second.hops
    assert second.hops["decode"] == first.hops["decode"]
    async with websocket(stack) as client:
        third = await client.turn("And of Spain?", max_output_tokens=LIMIT, previous_response_id=second.id)
    assert covers(third, second)


@pytest.mark.requirement("turn:resent-history")
async def test_a_history_sent_back_as_text_keeps_the_tokens_that_were_sampled(stack: Stack) -> None:
    history: list[dict[str, object]] = [{"role": "user", "content": QUESTION}]
    first = await sse_turn(stack, history, max_output_tokens=LIMIT)
    history += [*first.response["output"], {"role": "user", "content": "And of Italy?"}]
    second = await sse_turn(stack, history, max_output_tokens=LIMIT)
    assert first.answered and second.answered
    assert covers(second, first)
    assert "prefill" not in second.hops
