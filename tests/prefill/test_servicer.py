from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import xxhash

from tests.support.fleet import BLOCK, ROOT, Fleet, fleet
from tests.support.tiny_model import VOCABULARY_SIZE
from tests.support.waiting import DEADLINE
from tidemill.common.v1 import common_pb2
from tidemill.prefill.v1 import prefill_service_pb2 as pb
from tidemill_common.errors import Reason
from tidemill_common.rpc import from_rpc_error
from tidemill_common.tokens import pack

PROMPT = random.Random(8).choices(range(3, VOCABULARY_SIZE), k=150)


def request(running: Fleet, **more: Any) -> pb.PrefillRequest:
    fields: dict[str, Any] = {
        "root_digest": ROOT,
        "token_ids": pack(PROMPT),
        "sampling": common_pb2.Sampling(max_tokens=8),
        "fingerprint": running.prefill.process.worker.engine.fingerprint,
    }
    return pb.PrefillRequest(**(fields | more))


async def prefill(running: Fleet, **more: Any) -> list[pb.PrefillResponse]:
    return [response async for response in running.prefill_stub.Prefill(request(running, **more), timeout=DEADLINE)]


def chunks(responses: list[pb.PrefillResponse]) -> list[pb.KvChunk]:
    return [response.chunk for response in responses if response.HasField("chunk")]


async def test_kv_flows_while_later_blocks_are_computed_then_the_first_token_and_the_hop(tiny: Path) -> None:
    async with fleet(tiny) as running:
        responses = await prefill(running)
        kinds = [response.WhichOneof("kind") for response in responses]
        assert kinds[0] == "chunk"
        assert kinds.count("first_token") == 1
        assert kinds[-1] == "done"
        assert responses[-1].done.hop.service == "prefill"
        assert len(chunks(responses)) > 1
        assert sum(chunk.token_count for chunk in chunks(responses)) == len(PROMPT)
        await running.idle()


async def test_each_block_carries_its_checksum_and_each_chunk_its_place(tiny: Path) -> None:
    async with fleet(tiny) as running:
        place = 0
        for chunk in chunks(await prefill(running)):
            size = len(chunk.data) // len(chunk.checksums)
            blocks = [chunk.data[start : start + size] for start in range(0, len(chunk.data), size)]
            assert [xxhash.xxh3_64_intdigest(block) for block in blocks] == list(chunk.checksums)
            assert (chunk.first_block, chunk.first_layer, chunk.layer_count) == (place, 0, 2)
            place += len(blocks)
        assert place == -(-len(PROMPT) // BLOCK)


async def test_held_blocks_do_not_travel_and_a_second_time_nothing_is_computed(tiny: Path) -> None:
    async with fleet(tiny) as running:
        await prefill(running)
        responses = await prefill(running, held_blocks=4)
        assert chunks(responses)[0].first_block == 4
        assert sum(chunk.token_count for chunk in chunks(responses)) == len(PROMPT) - 4 * BLOCK
        (first,) = [response.first_token for response in responses if response.HasField("first_token")]
        assert first.cached_tokens == len(PROMPT) // BLOCK * BLOCK


@pytest.mark.requirement("worker:cancel")
async def test_a_reader_that_leaves_frees_all_blocks(tiny: Path) -> None:
    async with fleet(tiny) as running:
        call = running.prefill_stub.Prefill(request(running), timeout=DEADLINE)
        assert isinstance(await call.read(), pb.PrefillResponse)
        call.cancel()
        await running.idle()


@pytest.mark.parametrize(
    ("fields", "reason", "param"),
    [
        ({"fingerprint": "other"}, Reason.MODEL_MISMATCH, "fingerprint"),
        ({"token_ids": b""}, Reason.INVALID_REQUEST, "token_ids"),
        ({"held_blocks": 99}, Reason.INVALID_REQUEST, "token_ids"),
        ({"root_digest": b""}, Reason.INVALID_REQUEST, "root_digest"),
    ],
)
async def test_a_wrong_request_is_refused_with_its_reason(
    tiny: Path, fields: dict[str, Any], reason: Reason, param: str
) -> None:
    async with fleet(tiny) as running:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await prefill(running, **fields)
        error = from_rpc_error(caught.value)
        assert (error.reason, error.param) == (reason, param)


async def test_a_worker_tells_who_it_is(tiny: Path) -> None:
    async with fleet(tiny) as running:
        worker = await running.prefill_stub.GetWorker(pb.GetWorkerRequest(), timeout=DEADLINE)
        assert (worker.ref.worker_id, worker.block_size, worker.used_blocks) == ("prefill-0", BLOCK, 0)
        assert worker.ref.epoch
        assert worker.fingerprint.startswith(running.model)
