"""Two decode workers: turns go where their blocks are, unless the load there outweighs them."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from tests.e2e.client import websocket
from tests.e2e.stack import Stack
from tests.e2e.task import says
from tests.support.waiting import until

pytestmark = [pytest.mark.stack, pytest.mark.model, pytest.mark.timeout(600)]

WORDS = " ".join(f"word{n}" for n in range(300))
LONG = "".join(f"Note {n}: the mill at bridge {n} grinds when the tide turns. " for n in range(24))
SHORT = "Name a colour."


@pytest.mark.requirement("router:cache")
@pytest.mark.requirement("router:load")
async def test_turns_go_to_the_holder_of_their_blocks_unless_it_is_busy(pair: Stack) -> None:
    """Without a cache or load, a new conversation goes to the worker that its own id hashes to: either of the two."""
    names = pair.pids("decode")

    async def running() -> dict[str, int]:
        return {each.ref.worker_id: each.load.running for each in await pair.workers() if each.ref.worker_id in names.values()}

    async def reported(*counts: int) -> bool:
        return sorted((await running()).values()) == sorted(counts)

    async with AsyncExitStack() as owned:
        clients = [await owned.enter_async_context(websocket(pair)) for _ in range(5)]
        first, *busy, other = clients
        await first.ask("Say many words.", tidemill_forced_output=says(WORDS), max_output_tokens=1000)
        await first.until_text()
        await until(lambda: reported(1, 0))
        loaded, idle = sorted(names.values(), key=(await running()).__getitem__, reverse=True)
        long = await other.turn(LONG, max_output_tokens=8)
        await until(lambda: reported(1, 0))
        short = await other.turn(SHORT, max_output_tokens=8)
        assert {names[turn.hops["decode"]] for turn in (long, short)} == {idle}, "the other is busy, so load decides"
        await first.connection.close()
        await until(lambda: reported(0, 0))

        again = await other.turn("Go on.", max_output_tokens=8, previous_response_id=long.id)
        assert names[again.hops["decode"]] == idle, "both are idle, so the cache decides"
        assert again.cached > long.input_tokens - 32

        for client in busy:
            await client.ask(
                "Say it.", tidemill_forced_output=says(WORDS), max_output_tokens=1000, previous_response_id=long.id
            )
            await client.until_text()
        await until(lambda: reported(0, len(busy)))
        moved = await other.turn("Another.", max_output_tokens=8, previous_response_id=short.id)
        assert names[moved.hops["decode"]] == loaded, "the load on the holder outweighs a few blocks"
        assert moved.answered
