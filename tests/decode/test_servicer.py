from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.support.faults import FaultyPrefill
from tests.support.fleet import BLOCK, ROOT, Fleet, Turn, fleet
from tests.support.tiny_model import END_TOKEN, VOCABULARY_SIZE, make_tiny_model
from tests.support.waiting import DEADLINE
from tidemill.common.v1 import common_pb2
from tidemill.decode.v1 import decode_service_pb2 as pb
from tidemill.prefill.v1 import prefill_service_pb2 as prefill_pb
from tidemill_common.digests import chain
from tidemill_common.errors import Reason
from tidemill_common.rpc import from_rpc_error
from tidemill_common.tokens import pack
from tidemill_decode import metrics

PROMPT = random.Random(7).choices(range(3, VOCABULARY_SIZE), k=150)  # 9 full blocks and a part, computed in 5 chunks


def first_chunk_sent(seen: list[str]) -> bool:
    return "chunk" in seen


def first_token_sent(seen: list[str]) -> bool:
    return "first_token" in seen


def fallbacks(*reasons: Reason) -> float:
    return sum(float(metrics.FALLBACKS.labels(reason.value)._value.get()) for reason in reasons)


async def aggregated(running: Fleet, prompt: list[int] = PROMPT, **more: Any) -> Turn:
    """The turn computed by the decode worker alone, in a chain of its own so that nothing is cached for the next."""
    other = b"o" * 16
    return await running.generate(running.request(prompt, False, root_digest=other, prefix_digest=other, **more))


@pytest.mark.requirement("disaggregation:equal")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_a_disaggregated_turn_equals_an_aggregated_one_token_for_token(tiny: Path, temperature: float) -> None:
    sampling = common_pb2.Sampling(max_tokens=24, temperature=temperature, seed=3)
    async with fleet(tiny) as running:
        alone = await aggregated(running, sampling=sampling)
        pulled = await running.generate(running.request(PROMPT, True, sampling=sampling))
        assert pulled.tokens == alone.tokens
        assert len(pulled.tokens) == 24
        assert (alone.hops, pulled.hops) == (["decode"], ["prefill", "decode"])
        first = pulled.responses[0]
        assert (first.cached_tokens, first.transferred_tokens) == (0, len(PROMPT))
        assert alone.responses[0].transferred_tokens == 0
        assert pulled.responses[-1].finish_reason == common_pb2.FINISH_REASON_LENGTH
        await running.idle()


async def test_a_turn_of_one_token_still_tells_both_hops(tiny: Path) -> None:
    async with fleet(tiny) as running:
        pulled = await running.generate(running.request(PROMPT, True, max_tokens=1))
        assert pulled.tokens == (await aggregated(running, max_tokens=1)).tokens
        assert pulled.hops == ["prefill", "decode"]


async def test_the_next_turn_names_the_held_prefix_and_sends_only_what_follows(tiny: Path) -> None:
    async with fleet(tiny) as running:
        first = await running.generate(running.request(PROMPT, True))
        conversation = [*PROMPT, *first.tokens, 50, 51, 52]
        blocks = len(PROMPT) // BLOCK
        digest = chain(ROOT, pack(PROMPT))[-1]
        request = running.request(conversation[blocks * BLOCK :], False, prefix_digest=digest, prefix_blocks=blocks)
        second = await running.generate(request)
        assert second.responses[0].cached_tokens >= blocks * BLOCK
        assert second.tokens == (await aggregated(running, conversation)).tokens


async def test_what_decode_holds_does_not_travel(tiny: Path) -> None:
    async with fleet(tiny) as running:
        await running.generate(running.request(PROMPT[:64], False))
        pulled = await running.generate(running.request(PROMPT, True))
        assert pulled.responses[0].transferred_tokens == len(PROMPT) - 64
        assert pulled.tokens == (await aggregated(running)).tokens


@pytest.mark.requirement("disaggregation:prefill-death")
@pytest.mark.parametrize("moment", [first_chunk_sent, first_token_sent])
async def test_killing_prefill_in_mid_stream_costs_time_but_not_the_turn(
    tiny: Path, moment: Callable[[list[str]], bool]
) -> None:
    faulty: list[FaultyPrefill] = []

    def wrap(inner: Any) -> FaultyPrefill:
        faulty.append(FaultyPrefill(inner))
        faulty[0].hold_after = moment
        return faulty[0]

    async with fleet(tiny, wrap=wrap) as running:
        alone = await aggregated(running)
        before = fallbacks(Reason.UNAVAILABLE, Reason.CANCELLED)
        turn = Turn()
        call = running.decode_stub.Generate(running.request(PROMPT, True), timeout=DEADLINE)
        await faulty[0].held.wait()
        await running.prefill.server.stop(0)
        async for response in call:
            turn.responses.append(response)
            turn.tokens += list(memoryview(response.token_ids).cast("I"))
        assert turn.tokens == alone.tokens
        assert turn.hops == ["decode"]
        assert fallbacks(Reason.UNAVAILABLE, Reason.CANCELLED) == before + 1


@pytest.mark.requirement("disaggregation:corrupt")
async def test_a_corrupt_block_is_found_by_its_checksum_and_computed_anew(tiny: Path) -> None:
    def corrupt(response: prefill_pb.PrefillResponse) -> prefill_pb.PrefillResponse:
        if response.WhichOneof("kind") == "chunk":
            changed = prefill_pb.PrefillResponse()
            changed.CopyFrom(response)
            data = bytearray(response.chunk.data)
            data[-40] ^= 1
            changed.chunk.data = bytes(data)
            return changed
        return response

    def wrap(inner: Any) -> FaultyPrefill:
        faulty = FaultyPrefill(inner)
        faulty.change = corrupt
        return faulty

    async with fleet(tiny, wrap=wrap) as running:
        before = fallbacks(Reason.KV_CORRUPT)
        pulled = await running.generate(running.request(PROMPT, True))
        assert pulled.tokens == (await aggregated(running)).tokens
        assert fallbacks(Reason.KV_CORRUPT) == before + 1
        await running.idle()


async def test_kv_of_another_model_is_refused_and_the_prompt_computed_here(tiny: Path, tmp_path: Path) -> None:
    async with fleet(tiny, prefill_model=make_tiny_model(tmp_path, seed=1)) as running:
        before = fallbacks(Reason.MODEL_MISMATCH)
        pulled = await running.generate(running.request(PROMPT, True))
        assert pulled.tokens == (await aggregated(running)).tokens
        assert fallbacks(Reason.MODEL_MISMATCH) == before + 1


@pytest.mark.requirement("worker:no-address")
async def test_an_unknown_prefill_worker_is_never_asked_and_the_prompt_computed_here(tiny: Path) -> None:
    async with fleet(tiny) as running:
        before = fallbacks(Reason.WORKER_UNKNOWN)
        stranger = common_pb2.WorkerRef(worker_id="prefill-0", epoch=1)
        pulled = await running.generate(running.request(PROMPT, False, prefill=stranger))
        assert (pulled.hops, pulled.responses[0].transferred_tokens) == (["decode"], 0)
        assert pulled.tokens == (await aggregated(running)).tokens
        assert fallbacks(Reason.WORKER_UNKNOWN) == before + 1


@pytest.mark.requirement("worker:cancel")
async def test_a_client_that_leaves_while_tokens_flow_frees_all_blocks(tiny: Path) -> None:
    async with fleet(tiny) as running:
        call = running.decode_stub.Generate(running.request(PROMPT, True, max_tokens=800), timeout=DEADLINE)
        assert isinstance(await call.read(), pb.GenerateResponse)
        call.cancel()
        await running.idle()


@pytest.mark.requirement("worker:cancel")
async def test_a_client_that_leaves_during_prefill_ends_the_whole_tree(tiny: Path) -> None:
    faulty: list[FaultyPrefill] = []

    def wrap(inner: Any) -> FaultyPrefill:
        faulty.append(FaultyPrefill(inner))
        faulty[0].hold_after = first_chunk_sent
        return faulty[0]

    async with fleet(tiny, wrap=wrap) as running:
        call = running.decode_stub.Generate(running.request(PROMPT, True), timeout=DEADLINE)
        await faulty[0].held.wait()
        assert faulty[0].remaining is not None
        assert faulty[0].remaining <= DEADLINE, "the caller's deadline is passed on"
        call.cancel()
        await running.idle()


async def test_a_turn_past_its_deadline_ends_the_whole_tree(tiny: Path) -> None:
    def wrap(inner: Any) -> FaultyPrefill:
        faulty = FaultyPrefill(inner)
        faulty.hold_after = first_chunk_sent
        return faulty

    async with fleet(tiny, wrap=wrap) as running:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in running.decode_stub.Generate(running.request(PROMPT, True), timeout=1.0):
                pass
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await running.idle()


async def test_an_end_token_ends_the_turn_and_is_part_of_it(tiny: Path) -> None:
    async with fleet(tiny) as running:
        forced = common_pb2.Sampling(max_tokens=9, forced_token_ids=pack([40, 41, END_TOKEN]))
        turn = await running.generate(running.request(PROMPT, True, sampling=forced))
        assert turn.tokens == [40, 41, END_TOKEN]
        assert turn.responses[-1].finish_reason == common_pb2.FINISH_REASON_END_OF_TURN


async def test_a_prompt_alone_is_computed_and_cached(tiny: Path) -> None:
    async with fleet(tiny) as running:
        warmed = await running.generate(running.request(PROMPT, True, max_tokens=0))
        assert warmed.tokens == []
        turn = await running.generate(running.request(PROMPT, False))
        assert turn.responses[0].cached_tokens == len(PROMPT) // BLOCK * BLOCK


@pytest.mark.parametrize(
    ("fields", "reason", "param"),
    [
        ({"prefix_digest": b"x" * 16, "prefix_blocks": 3}, Reason.PREFIX_UNKNOWN, None),
        ({"model_fingerprint": "other"}, Reason.MODEL_MISMATCH, "model_fingerprint"),
        ({"block_size": 32}, Reason.MODEL_MISMATCH, "block_size"),
        ({"token_ids": b""}, Reason.INVALID_REQUEST, "token_ids"),
        ({"token_ids": b"odd"}, Reason.INVALID_REQUEST, "token_ids"),
        ({"root_digest": b"short"}, Reason.INVALID_REQUEST, "root_digest"),
        ({"sampling": common_pb2.Sampling(temperature=-1)}, Reason.INVALID_REQUEST, "temperature"),
        ({"sampling": common_pb2.Sampling(top_p=2)}, Reason.INVALID_REQUEST, "top_p"),
    ],
)
async def test_a_wrong_request_is_refused_with_its_reason(
    tiny: Path, fields: dict[str, Any], reason: Reason, param: str | None
) -> None:
    async with fleet(tiny) as running:
        for prefilled in (False, True):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await running.generate(running.request(PROMPT, prefilled, **fields))
            error = from_rpc_error(caught.value)
            assert (error.reason, error.param) == (reason, param)
        await running.idle()
