from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import grpc
import grpc.aio
import pytest

from tests.router.support import BLOCK, MODEL, ROOT, digests
from tidemill.common.v1 import common_pb2
from tidemill.router.v1 import router_service_pb2 as pb
from tidemill.router.v1 import router_service_pb2_grpc as pb_grpc
from tidemill_common.errors import Reason
from tidemill_common.rpc import Boundary, connect, from_rpc_error
from tidemill_common.telemetry import Identity
from tidemill_router.policy import Weights
from tidemill_router.routing import Limits, Router
from tidemill_router.servicer import RouterServicer

DEADLINE = 10.0


class Worker:
    """A worker's side of its stream, as a test drives it."""

    def __init__(self, stub: pb_grpc.RouterServiceAsyncStub, name: str, epoch: int = 1, role: int = pb.ROLE_DECODE) -> None:
        self.stream = stub.Register(timeout=DEADLINE)
        self.ref = common_pb2.WorkerRef(worker_id=name, epoch=epoch)
        self.role = role
        self.next_event = 1

    async def hello(self) -> list[str]:
        """Register; ids of the membership that comes back."""
        worker = pb.Worker(ref=self.ref, role=self.role, address="w:1", fingerprint=f"{MODEL}/f32", block_size=BLOCK)  # type: ignore[arg-type]
        await self.stream.write(pb.RegisterRequest(hello=worker))
        return await self.membership()

    async def membership(self) -> list[str]:
        response = await self.stream.read()
        assert isinstance(response, pb.RegisterResponse)
        return [worker.ref.worker_id for worker in response.workers]

    async def store(self, blocks: Sequence[bytes], sequence: int | None = None) -> None:
        event = pb.BlockEvent(stored=pb.BlocksStored(parent_digest=ROOT, block_digests=b"".join(blocks)))
        events = pb.BlockEvents(sequence=sequence or self.next_event, events=[event])
        await self.stream.write(pb.RegisterRequest(events=events))
        self.next_event += 1

    async def load(self, **load: int) -> None:
        await self.stream.write(pb.RegisterRequest(load=pb.Load(**load)))

    async def failure(self) -> tuple[grpc.StatusCode, Reason]:
        """How the router ended the stream."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            while await self.stream.read() is not grpc.aio.EOF:
                pass
        return caught.value.code(), from_rpc_error(caught.value).reason


@dataclass
class Running:
    stub: pb_grpc.RouterServiceAsyncStub
    servicer: RouterServicer
    now: list[float] = field(default_factory=lambda: [0.0])

    async def until(self, workers: int | None = None, blocks: int | None = None, running: int | None = None) -> None:
        """Wait until the router's lists say so; workers report asynchronously."""
        async with asyncio.timeout(DEADLINE):
            while True:
                listed = await self.stub.ListWorkers(pb.ListWorkersRequest(), timeout=DEADLINE)
                loads = sum(worker.load.running for worker in listed.workers)
                if (
                    workers in (None, len(listed.workers))
                    and blocks in (None, listed.indexed_blocks)
                    and running in (None, loads)
                ):
                    return

    async def route(self, blocks: int, **more: object) -> pb.RouteResponse:
        request = pb.RouteRequest(
            parent_digest=ROOT,
            block_digests=b"".join(digests(blocks)),
            token_count=blocks * BLOCK + 1,
            model_fingerprint=MODEL,
            **more,  # type: ignore[arg-type]
        )
        return await self.stub.Route(request, timeout=DEADLINE)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    server = grpc.aio.server(interceptors=[Boundary("router")])
    now = [0.0]
    servicer = RouterServicer(Router(Limits(), Weights()), Identity("router", "node"), clock=lambda: now[0])
    pb_grpc.add_RouterServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with connect(f"127.0.0.1:{port}") as channel:
        yield Running(pb_grpc.RouterServiceStub(channel), servicer, now)
    servicer.close()
    await server.stop(None)


@contextlib.asynccontextmanager
async def two_decoders(running: Running) -> AsyncIterator[tuple[Worker, Worker]]:
    first, second = Worker(running.stub, "decode-0"), Worker(running.stub, "decode-1")
    await first.hello()
    await second.hello()
    yield first, second


@pytest.mark.requirement("router:cache")
async def test_with_two_decode_workers_the_one_that_holds_the_prefix_is_chosen(running: Running) -> None:
    async with two_decoders(running) as (_, second):
        await second.store(digests(40))
        await running.until(blocks=40)
        response = await running.route(41)
        assert (response.decode.ref.worker_id, response.decode_blocks, response.reason) == ("decode-1", 40, "cache")
        assert response.hop.service == "router"


@pytest.mark.requirement("router:load")
async def test_with_two_decode_workers_a_busy_holder_is_passed_over(running: Running) -> None:
    async with two_decoders(running) as (_, second):
        await second.store(digests(40))
        await second.load(running=16, waiting=9)
        await running.until(blocks=40, running=16)
        response = await running.route(41)
        assert (response.decode.ref.worker_id, response.decode_blocks, response.reason) == ("decode-0", 0, "load")


async def test_an_excluded_worker_is_not_chosen_and_a_long_prompt_gets_a_prefill_worker(running: Running) -> None:
    async with two_decoders(running) as (first, _):
        prefill = Worker(running.stub, "prefill-0", role=pb.ROLE_PREFILL)
        await prefill.hello()
        response = await running.route(41, excluded=[first.ref])
        assert (response.decode.ref.worker_id, response.reason) == ("decode-1", "only")
        assert response.prefill.ref == prefill.ref
        assert response.prefill.address == "w:1"
        assert not (await running.route(4)).HasField("prefill")


async def test_membership_comes_at_once_and_at_each_change(running: Running) -> None:
    first, second = Worker(running.stub, "decode-0"), Worker(running.stub, "decode-1")
    assert await first.hello() == ["decode-0"]
    assert await second.hello() == ["decode-0", "decode-1"]
    assert await first.membership() == ["decode-0", "decode-1"]
    second.stream.cancel()
    assert await first.membership() == ["decode-0"]


@pytest.mark.requirement("router:events")
async def test_a_gap_in_block_events_ends_the_stream_and_a_fresh_one_is_welcome(running: Running) -> None:
    worker = Worker(running.stub, "decode-0")
    await worker.hello()
    await worker.store(digests(4))
    await worker.store(digests(8), sequence=3)
    assert await worker.failure() == (grpc.StatusCode.FAILED_PRECONDITION, Reason.EVENT_GAP)
    again = Worker(running.stub, "decode-0")
    assert await again.hello() == ["decode-0"]
    await again.store(digests(8))
    await running.until(workers=1, blocks=8)


async def test_a_new_epoch_ends_the_old_stream_and_starts_empty(running: Running) -> None:
    old = Worker(running.stub, "decode-0", epoch=1)
    await old.hello()
    await old.store(digests(4))
    await running.until(blocks=4)
    new = Worker(running.stub, "decode-0", epoch=2)
    await new.hello()
    assert await old.failure() == (grpc.StatusCode.NOT_FOUND, Reason.WORKER_UNKNOWN)
    await running.until(workers=1, blocks=0)


@pytest.mark.requirement("router:silence")
async def test_a_silent_worker_is_dropped_and_told(running: Running) -> None:
    worker = Worker(running.stub, "decode-0")
    await worker.hello()
    await worker.store(digests(4))
    await running.until(blocks=4)
    running.now[0] = 10.0
    running.servicer.drop_silent()
    assert await worker.failure() == (grpc.StatusCode.NOT_FOUND, Reason.WORKER_UNKNOWN)
    await running.until(workers=0, blocks=0)


async def test_a_draining_worker_stays_known_but_is_not_chosen(running: Running) -> None:
    worker = Worker(running.stub, "decode-0")
    await worker.hello()
    await worker.stream.write(pb.RegisterRequest(drain=pb.Drain()))
    await worker.load(running=1)
    await running.until(workers=1, running=1)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.route(4)
    assert from_rpc_error(caught.value).reason is Reason.NO_WORKERS


@pytest.mark.parametrize(
    "first", [pb.RegisterRequest(load=pb.Load()), pb.RegisterRequest(hello=pb.Worker(role=pb.ROLE_DECODE))]
)
async def test_a_stream_that_does_not_begin_with_a_full_hello_is_refused(running: Running, first: pb.RegisterRequest) -> None:
    worker = Worker(running.stub, "decode-0")
    await worker.stream.write(first)
    assert await worker.failure() == (grpc.StatusCode.INVALID_ARGUMENT, Reason.INVALID_REQUEST)


async def test_a_second_stream_of_the_same_life_is_refused(running: Running) -> None:
    worker, twin = Worker(running.stub, "decode-0"), Worker(running.stub, "decode-0")
    await worker.hello()
    await twin.stream.write(
        pb.RegisterRequest(hello=pb.Worker(ref=twin.ref, role=pb.ROLE_DECODE, address="w:1", fingerprint="m/f", block_size=16))
    )
    assert (await twin.failure())[1] is Reason.INVALID_REQUEST
    await running.until(workers=1)


@pytest.mark.parametrize(
    "request_",
    [
        pb.RouteRequest(parent_digest=b"short", token_count=3),
        pb.RouteRequest(parent_digest=ROOT, block_digests=b"odd", token_count=3),
        pb.RouteRequest(parent_digest=ROOT, parent_blocks=9, token_count=3),
    ],
)
async def test_a_malformed_prompt_is_refused_by_field(running: Running, request_: pb.RouteRequest) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.stub.Route(request_, timeout=DEADLINE)
    error = from_rpc_error(caught.value)
    assert error.reason is Reason.INVALID_REQUEST
    assert error.param
