from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.engines import Result, ask, collect, disaggregated, hand, running
from tests.support.tiny_model import make_tiny_model
from tidemill_common.errors import Reason, TidemillError
from tidemill_engine.engine import Engine
from tidemill_engine.outputs import FirstToken, KvBlocks
from tidemill_engine.sampling import FinishReason

PROMPT = [3 + n * 7 % 250 for n in range(75)]


@contextlib.asynccontextmanager
async def pair(model: Path) -> AsyncIterator[tuple[Engine, Engine]]:
    async with running(model, prefill_chunk=32) as prefill, running(model) as decode:
        yield prefill, decode


async def parts_of(prefill: Engine, prompt: list[int] = PROMPT, held: int = 0) -> list[KvBlocks | FirstToken]:
    async with contextlib.aclosing(prefill.prefill(ask(prompt), held)) as run:
        return [part async for part in run]


@pytest.mark.requirement("engine:disaggregated-equal")
@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 3}, {"grammar": "start: /[a-z ]+/"}, {"stop": ("zz",)}])
async def test_output_is_the_same_as_without_disaggregation(tiny: Path, sampling: dict[str, Any]) -> None:
    async with pair(tiny) as (prefill, decode), running(tiny) as single:
        request = ask(PROMPT, **sampling)
        expected = await collect(single.generate(request))
        assert await disaggregated(prefill, decode, request) == expected
        # Now both hold the prompt: only its last block travels.
        again = await disaggregated(prefill, decode, request)
        assert (again.tokens, again.finish) == (expected.tokens, expected.finish)
        assert again.cached == 64


async def test_only_blocks_that_decode_lacks_travel(tiny: Path) -> None:
    async with pair(tiny) as (prefill, _):
        for held in (0, 2, 4):
            parts = await parts_of(prefill, held=held)
            blocks = [part for part in parts if isinstance(part, KvBlocks)]
            assert blocks[0].first_block == held
            assert sum(part.token_count for part in blocks) == len(PROMPT) - held * 16
            assert sum(isinstance(part, FirstToken) for part in parts) == 1


@pytest.mark.requirement("engine:kv-streams")
async def test_blocks_leave_before_the_prompt_is_whole(tiny: Path) -> None:
    async with (
        running(tiny, prefill_chunk=16) as prefill,
        contextlib.aclosing(prefill.prefill(ask(PROMPT * 8), 0)) as run,
    ):
        assert isinstance(await anext(run), KvBlocks)
        assert prefill.stats().pending_prefill_tokens > 0


async def test_the_first_token_goes_out_before_the_kv_is_complete(tiny: Path) -> None:
    async with pair(tiny) as (prefill, decode):
        parts = await parts_of(prefill)
        token = next(part for part in parts if isinstance(part, FirstToken))
        generation = decode.generate_remote(ask(PROMPT))
        async with contextlib.aclosing(generation):
            await generation.admitted()
            await hand(token, generation)
            step = await anext(generation)
            assert step.token_ids == (token.token_id,)
            assert step.cached_tokens == token.cached_tokens


@pytest.mark.requirement("engine:prefill-lost")
@pytest.mark.parametrize("arrived", range(4))
@pytest.mark.parametrize("prompt", [PROMPT, PROMPT[:64]], ids=["part block", "whole blocks"])
async def test_decode_goes_on_alone_when_the_transfer_fails(tiny: Path, arrived: int, prompt: list[int]) -> None:
    async with pair(tiny) as (prefill, decode), running(tiny) as single:
        expected = await collect(single.generate(ask(prompt)))
        parts = await parts_of(prefill, prompt)
        parts.sort(key=lambda part: not isinstance(part, FirstToken))
        generation = decode.generate_remote(ask(prompt))
        await generation.admitted()
        for part in parts[:arrived]:
            await hand(part, generation)
        await generation.fail()
        for part in parts[arrived:]:
            await hand(part, generation)
        result = await collect(generation)
    assert (result.tokens, result.finish) == (expected.tokens, expected.finish)


async def test_a_stream_that_completes_without_a_first_token_is_no_loss(tiny: Path) -> None:
    async with pair(tiny) as (prefill, decode), running(tiny) as single:
        generation = decode.generate_remote(ask(PROMPT))
        await generation.admitted()
        for part in await parts_of(prefill):
            if isinstance(part, KvBlocks):
                await hand(part, generation)
        await generation.complete()
        assert (await collect(generation)).tokens == (await collect(single.generate(ask(PROMPT)))).tokens


@pytest.mark.requirement("engine:late-chunk")
async def test_a_chunk_that_lands_after_the_abort_is_dropped(tiny: Path) -> None:
    async with pair(tiny) as (prefill, decode):
        parts = [part for part in await parts_of(prefill) if isinstance(part, KvBlocks)]
        generation = decode.generate_remote(ask(PROMPT))
        await generation.admitted()
        await generation.aclose()
        expected = await collect(decode.generate(ask(PROMPT[::-1], max_tokens=0)))
        before = decode._handle.core.runner.cache.data.clone()
        await hand(parts[0], generation)
        assert decode.dropped_chunks == 1
        assert before.equal(decode._handle.core.runner.cache.data)
        assert expected == Result([], FinishReason.LENGTH, 0)


@pytest.mark.requirement("engine:kv-checksums")
async def test_a_corrupt_or_misplaced_chunk_is_refused_and_the_turn_survives(tiny: Path) -> None:
    async with pair(tiny) as (prefill, decode), running(tiny) as single:
        blocks = [part for part in await parts_of(prefill) if isinstance(part, KvBlocks)]
        generation = decode.generate_remote(ask(PROMPT))
        await generation.admitted()
        first = blocks[0]
        broken = bytes([first.data[0] ^ 1]) + first.data[1:]
        for wrong in (
            KvBlocks(0, first.token_count, broken, first.checksums),
            KvBlocks(1, first.token_count, first.data, first.checksums),
            KvBlocks(0, first.token_count - 1, first.data, first.checksums),
            KvBlocks(0, first.token_count, first.data[:-1], first.checksums),
        ):
            with pytest.raises(TidemillError) as caught:
                await hand(wrong, generation)
            assert caught.value.reason is Reason.KV_CORRUPT
        with pytest.raises(TidemillError, match="vocabulary"):
            await generation.first_token(10**6, 0)
        await generation.fail()
        assert (await collect(generation)).tokens == (await collect(single.generate(ask(PROMPT)))).tokens


async def test_a_first_token_may_end_the_turn(tiny: Path) -> None:
    async with pair(tiny) as (prefill, decode):
        result = await disaggregated(prefill, decode, ask(PROMPT, max_tokens=1))
        assert (len(result.tokens), result.finish) == (1, FinishReason.LENGTH)
        ending = await disaggregated(prefill, decode, ask(PROMPT, end_token_ids=tuple(result.tokens)))
        assert (ending.tokens, ending.finish) == (result.tokens, FinishReason.END_OF_TURN)


async def test_forced_tokens_cross_engines(tiny: Path) -> None:
    forced = tuple(range(40, 60))
    async with pair(tiny) as (prefill, decode):
        result = await disaggregated(prefill, decode, ask(PROMPT, max_tokens=99, forced_token_ids=forced))
    assert (result.tokens, result.finish) == (list(forced), FinishReason.END_OF_TURN)


@pytest.mark.requirement("engine:abort-frees")
async def test_a_reader_may_leave_at_any_time(tiny: Path) -> None:
    async with pair(tiny) as (prefill, decode):
        for count in range(4):
            async with contextlib.aclosing(prefill.prefill(ask(PROMPT * 3), 0)) as run:
                for _ in range(count):
                    await anext(run)
        waiting = decode.generate_remote(ask(PROMPT))
        admitted = asyncio.create_task(waiting.admitted())
        await asyncio.sleep(0)
        await waiting.aclose()
        with contextlib.suppress(TidemillError):
            await admitted


def test_other_weights_have_another_fingerprint(tiny: Path, tmp_path: Path) -> None:
    from tidemill_engine.settings import EngineSettings

    names = {Engine.load(model, EngineSettings()).fingerprint for model in (tiny, make_tiny_model(tmp_path, seed=1))}
    assert len(names) == 2
