from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from tests.engine.engines import ROOT, ask, collect, running
from tests.support.tiny_model import CONTEXT_LENGTH, END_TOKEN
from tidemill_common.digests import chain
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.tokens import pack
from tidemill_common.vocabulary import Vocabulary
from tidemill_engine.core import EngineCore
from tidemill_engine.engine import Engine
from tidemill_engine.events import BlockEvent
from tidemill_engine.generation import Generation
from tidemill_engine.held_chains import HeldChains
from tidemill_engine.request import EngineRequest
from tidemill_engine.runner import ModelChunk
from tidemill_engine.sampling import FinishReason, SamplingParams
from tidemill_engine.settings import EngineSettings

PROMPTS = [[3 + (seed * 31 + n * 7) % 250 for n in range(5 + seed * 9)] for seed in range(6)]


async def reason_of(generation: Generation) -> Reason:
    with pytest.raises(TidemillError) as caught:
        await collect(generation)
    return caught.value.reason


@pytest.mark.requirement("engine:seed")
async def test_a_seed_gives_the_same_output_alone_and_in_a_batch(tiny: Path) -> None:
    requests = [ask(prompt, temperature=1.0, top_p=0.95, seed=n) for n, prompt in enumerate(PROMPTS)]
    async with running(tiny, prefill_chunk=32) as engine:
        alone = [(await collect(engine.generate(request))).tokens for request in requests]
        batched = await asyncio.gather(*(collect(engine.generate(request)) for request in requests))
        other = await collect(engine.generate(ask(PROMPTS[0], temperature=1.0, top_p=0.95, seed=99)))
    assert [result.tokens for result in batched] == alone
    assert other.tokens != alone[0]


async def test_a_second_turn_finds_prompt_and_output_in_the_cache(tiny: Path) -> None:
    async with running(tiny) as engine:
        first = await collect(engine.generate(ask(PROMPTS[2], max_tokens=12)))
        history = PROMPTS[2] + first.tokens
        second = await collect(engine.generate(ask([*history, 50, 51])))
    assert first.cached == 0
    # The last sampled token has no KV yet.
    assert second.cached == (len(history) - 1) // 16 * 16


async def test_a_held_prefix_is_named_instead_of_sent(tiny: Path) -> None:
    tokens = PROMPTS[5]
    digests = chain(ROOT, pack(tokens))
    async with running(tiny) as engine:
        whole = await collect(engine.generate(ask(tokens)))
        rest = EngineRequest("r", ROOT, digests[1], 2, tuple(tokens[32:]), SamplingParams(max_tokens=8))
        assert (await collect(engine.generate(rest))).tokens == whole.tokens


@pytest.mark.requirement("engine:prefix-unknown")
async def test_an_unknown_prefix_is_named_at_the_first_await(tiny: Path) -> None:
    lost = EngineRequest("r", ROOT, b"x" * 16, 2, (5,), SamplingParams())
    async with running(tiny) as engine:
        assert await reason_of(engine.generate(lost)) is Reason.PREFIX_UNKNOWN
        with pytest.raises(TidemillError, match="not held"):
            await engine.generate_remote(lost).admitted()


async def test_max_tokens_of_zero_computes_and_caches_the_prompt(tiny: Path) -> None:
    async with running(tiny) as engine:
        warm = await collect(engine.generate(ask(PROMPTS[5], max_tokens=0)))
        assert (warm.tokens, warm.finish, warm.cached) == ([], FinishReason.LENGTH, 0)
        assert (await collect(engine.generate(ask(PROMPTS[5])))).cached == len(PROMPTS[5]) // 16 * 16


@pytest.mark.requirement("engine:context-limit")
async def test_the_context_length_bounds_prompt_and_output(tiny: Path) -> None:
    async with running(tiny, context_length=20) as engine:
        assert engine.context_length == 20
        assert await reason_of(engine.generate(ask([5] * 20))) is Reason.CONTEXT_LENGTH_EXCEEDED
        result = await collect(engine.generate(ask([5] * 15, max_tokens=100)))
        assert (len(result.tokens), result.finish) == (5, FinishReason.LENGTH)


async def test_the_context_may_be_set_above_the_models_own(tiny: Path) -> None:
    async with running(tiny, context_length=2 * CONTEXT_LENGTH) as engine:
        result = await collect(engine.generate(ask([7, 8, 9] * 400, max_tokens=2)))
    assert len(result.tokens) == 2


async def test_a_pool_smaller_than_the_context_bounds_it(tiny: Path) -> None:
    async with running(tiny, kv_bytes=100_000) as engine:
        assert engine.context_length == engine.stats().total_blocks * 16 < CONTEXT_LENGTH


@pytest.mark.parametrize(
    "request_",
    [ask([]), ask([999_999]), ask([5], forced_token_ids=(999_999,)), ask([5], resumed=2)],
    ids=["empty", "token", "forced", "resumed"],
)
async def test_a_request_out_of_range_is_refused_by_name(tiny: Path, request_: EngineRequest) -> None:
    async with running(tiny) as engine:
        assert await reason_of(engine.generate(request_)) is Reason.INVALID_REQUEST


async def test_end_tokens_and_stop_strings_end_a_turn(tiny: Path) -> None:
    async with running(tiny) as engine:
        free = (await collect(engine.generate(ask(PROMPTS[1], max_tokens=12)))).tokens
        ending = await collect(engine.generate(ask(PROMPTS[1], max_tokens=12, end_token_ids=(free[3],))))
        assert ending.finish is FinishReason.END_OF_TURN
        assert ending.tokens == free[: free.index(free[3]) + 1]
        script = ask(PROMPTS[1], forced_token_ids=tuple(3 + byte for byte in b"one two"))
        assert (await collect(engine.generate(script))).finish is FinishReason.END_OF_TURN
        text = bytes(token - 3 for token in free if token >= 3)
        stop = text[4:6].decode("latin-1")
        if stop.isascii():
            assert (await collect(engine.generate(ask(PROMPTS[1], max_tokens=12, stop=(stop,))))).finish is FinishReason.STOP


@pytest.mark.requirement("engine:forced-tokens")
async def test_forced_tokens_replace_sampled_ones_and_their_kv_is_computed(tiny: Path) -> None:
    forced = tuple(range(40, 60))
    request = ask(PROMPTS[1], max_tokens=100, forced_token_ids=forced, grammar='start: "no"', end_token_ids=(45,))
    async with running(tiny) as engine:
        result = await collect(engine.generate(request))
        again = await collect(engine.generate(ask([*PROMPTS[1], *forced, 5])))
        cut = await collect(engine.generate(ask(PROMPTS[1], max_tokens=4, forced_token_ids=forced)))
    assert (result.tokens, result.finish) == (list(forced), FinishReason.END_OF_TURN)
    assert again.cached == (len(PROMPTS[1]) + len(forced) - 1) // 16 * 16
    assert (cut.tokens, cut.finish) == (list(forced[:4]), FinishReason.LENGTH)


@pytest.mark.requirement("engine:resume")
@pytest.mark.parametrize("grammar", ["", "start: /[a-z ]+/"])
async def test_a_turn_goes_on_from_resumed_tokens_as_if_never_broken(tiny: Path, grammar: str) -> None:
    async with running(tiny) as engine:
        whole = await collect(engine.generate(ask(PROMPTS[1], temperature=1.0, seed=5, grammar=grammar)))
        for given in (1, 5, 8):
            tokens = [*PROMPTS[1], *whole.tokens[:given]]
            rest = await collect(engine.generate(ask(tokens, given, temperature=1.0, seed=5, grammar=grammar)))
            assert whole.tokens[:given] + rest.tokens == whole.tokens
            assert rest.finish is FinishReason.LENGTH


SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["look", "list"]}, "count": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "count"],
    "additionalProperties": False,
}


@pytest.mark.requirement("engine:grammar")
async def test_only_valid_calls_come_out_under_a_grammar(tiny: Path) -> None:
    grammar = 'start: "<call>" call "</call>"\ncall: %json ' + json.dumps(
        {**SCHEMA, "x-guidance": {"whitespace_flexible": False}}
    )
    requests = [
        ask(prompt, temperature=1.5, seed=seed, max_tokens=120, grammar=grammar, end_token_ids=(END_TOKEN,))
        for seed, prompt in enumerate(PROMPTS)
    ]
    vocabulary = Vocabulary.load(tiny)
    async with running(tiny) as engine:
        results = await asyncio.gather(*(collect(engine.generate(request)) for request in requests))
    for result in results:
        assert result.finish is FinishReason.END_OF_TURN
        text = vocabulary.decode(result.tokens[:-1]).decode()
        call = json.loads(text.removeprefix("<call>").removesuffix("</call>"))
        assert call["name"] in ("look", "list")
        assert 0 <= call["count"] <= 99


async def test_a_bad_grammar_fails_only_its_own_request(tiny: Path) -> None:
    async with running(tiny) as engine:
        good, bad = await asyncio.gather(
            collect(engine.generate(ask(PROMPTS[1]))), reason_of(engine.generate(ask(PROMPTS[2], grammar="start: nothing")))
        )
    assert len(good.tokens) == 8
    assert bad is Reason.INVALID_TOOLS


async def test_the_load_shows_a_request_before_its_first_step_ends(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, may_go_on = threading.Event(), threading.Event()
    step = EngineCore.step

    def held(core: EngineCore) -> bool:
        entered.set()
        may_go_on.wait(60)
        return step(core)

    monkeypatch.setattr(EngineCore, "step", held)
    async with running(tiny) as engine:
        task = asyncio.create_task(collect(engine.generate(ask(range(10, 30)))))
        await asyncio.to_thread(entered.wait, 60)
        assert (engine.stats().sequences, engine.stats().pending_prefill_tokens) == (1, 20)
        may_go_on.set()
        await task


@pytest.mark.requirement("engine:abort-frees")
async def test_abort_frees_everything_whether_waiting_computing_or_generating(tiny: Path) -> None:
    async with running(tiny, max_running=2, prefill_chunk=4) as engine:
        generations = [engine.generate(ask(prompt, max_tokens=900)) for prompt in PROMPTS]
        first = [asyncio.create_task(anext(generation)) for generation in generations]
        await first[0]
        for generation in reversed(generations):
            await generation.aclose()
            await generation.aclose()
        assert engine.stats().sequences == engine.stats().used_blocks == 0
        results = await asyncio.gather(*first[1:], return_exceptions=True)
        assert all(not isinstance(result, Exception) or isinstance(result, StopAsyncIteration) for result in results)


async def test_a_cancelled_caller_that_closes_leaves_nothing(tiny: Path) -> None:
    async with running(tiny) as engine:
        for laps in range(6):
            task = asyncio.create_task(collect(engine.generate(ask(PROMPTS[3], max_tokens=900))))
            for _ in range(laps):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await collect(engine.generate(ask(PROMPTS[0])))


@pytest.mark.requirement("engine:preemption")
async def test_sequences_that_lost_their_blocks_give_the_same_output(tiny: Path) -> None:
    requests = [ask(prompt[:20], max_tokens=60, temperature=0.8, seed=n) for n, prompt in enumerate(PROMPTS)]
    async with running(tiny) as engine:
        calm = [(await collect(engine.generate(request))).tokens for request in requests]
    block_bytes = 2 * 2 * 16 * 2 * 16 * 4
    async with running(tiny, kv_bytes=12 * block_bytes) as engine:
        tight = await asyncio.gather(*(collect(engine.generate(request)) for request in requests))
        assert engine.preemptions > 0
    assert [result.tokens for result in tight] == calm


async def test_a_full_queue_refuses_and_those_in_it_are_served(tiny: Path) -> None:
    async with running(tiny, max_running=1, max_waiting=2) as engine:
        results = await asyncio.gather(
            *(collect(engine.generate(ask(PROMPTS[0], max_tokens=30))) for _ in range(8)), return_exceptions=True
        )
    refused = [result for result in results if isinstance(result, TidemillError)]
    assert {error.reason for error in refused} == {Reason.OVERLOADED}
    assert 2 <= len(results) - len(refused) < 8


async def test_events_tell_what_is_held_in_order(tiny: Path) -> None:
    mirror = HeldChains()
    events: list[BlockEvent] = []
    async with running(tiny, kv_bytes=200_000) as engine:
        await collect(engine.generate(ask(PROMPTS[5])))
        mirror.apply(engine.held_chains())
        stop = [engine.subscribe(mirror.apply), engine.subscribe(events.extend)]
        for prompt in PROMPTS:
            await collect(engine.generate(ask([*prompt, *prompt])))
        assert mirror.chains() == engine.held_chains()
        assert events
        for unsubscribe in stop:
            unsubscribe()
        count = len(events)
        await collect(engine.generate(ask([9] * 40)))
        assert len(events) == count


async def test_stopping_ends_what_runs_with_an_error(tiny: Path) -> None:
    engine = Engine.load(tiny, EngineSettings(kv_bytes=4 << 20))
    engine.start(asyncio.get_running_loop())
    generation = engine.generate(ask(PROMPTS[0], max_tokens=1000))
    await anext(generation)
    await asyncio.to_thread(engine.stop)
    assert await reason_of(generation) is Reason.UNAVAILABLE
    assert await reason_of(engine.generate(ask(PROMPTS[0]))) is Reason.UNAVAILABLE
    assert not engine.alive
    assert engine.stats().used_blocks == 0


@pytest.mark.requirement("engine:fault-isolation")
async def test_a_fault_in_the_model_ends_only_the_sequence_concerned(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tiny) as engine:
        runner = engine._handle.core.runner
        forward = runner.forward

        def fragile(chunks: Sequence[ModelChunk]) -> torch.Tensor:
            if any(200 in chunk.token_ids for chunk in chunks):
                raise RuntimeError("no such kernel")
            return forward(chunks)

        monkeypatch.setattr(runner, "forward", fragile)
        good, bad = await asyncio.gather(collect(engine.generate(ask([5, 6, 7]))), reason_of(engine.generate(ask([5, 200, 7]))))
    assert len(good.tokens) == 8
    assert bad is Reason.INTERNAL
    assert "no such kernel" in caplog.text


async def test_bfloat16_runs_and_has_another_fingerprint(tiny: Path) -> None:
    async with running(tiny, dtype="bfloat16") as half, running(tiny) as full:
        assert len((await collect(half.generate(ask(PROMPTS[1])))).tokens) == 8
        assert half.fingerprint != full.fingerprint
        assert half.model_fingerprint == full.model_fingerprint


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "mamba"}, "mamba"),
        ({"use_sliding_window": True}, "sliding"),
        ({"layer_types": ["sliding_attention"]}, "sliding"),
    ],
)
def test_an_unsupported_model_is_refused_by_name(tiny: Path, tmp_path: Path, change: dict[str, object], named: str) -> None:
    for file in tiny.iterdir():
        (tmp_path / file.name).symlink_to(file)
    config = json.loads((tiny / "config.json").read_text())
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(TidemillError, match=named):
        Engine.load(tmp_path, EngineSettings())


@pytest.mark.parametrize("settings", [EngineSettings(dtype="float8"), EngineSettings(kv_bytes=10)])
def test_settings_that_cannot_work_are_refused(tiny: Path, settings: EngineSettings) -> None:
    with pytest.raises(TidemillError) as caught:
        Engine.load(tiny, settings)
    assert caught.value.reason is Reason.CONFIG
