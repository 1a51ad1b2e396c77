from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import grpc.aio

from tests.engine.worker.support import ROOT, FakeCache, digest
from tests.support.waiting import DEADLINE, until
from tidemill.common.v1 import common_pb2
from tidemill.router.v1 import router_service_pb2 as pb
from tidemill.router.v1 import router_service_pb2_grpc as pb_grpc
from tidemill_common.rpc import Boundary
from tidemill_common.telemetry import Identity
from tidemill_engine.events import BlocksRemoved, BlocksStored
from tidemill_engine.worker.membership import Membership
from tidemill_engine.worker.registration import Registration
from tidemill_router.policy import Weights
from tidemill_router.routing import Limits, Router
from tidemill_router.servicer import RouterServicer


@contextlib.asynccontextmanager
async def router(port: int = 0) -> AsyncIterator[tuple[Router, int]]:
    server = grpc.aio.server(interceptors=[Boundary("router")])
    core = Router(Limits(), Weights())
    servicer = RouterServicer(core, Identity("router", "node"))
    pb_grpc.add_RouterServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield core, port
    finally:
        servicer.close()
        await server.stop(0)


@contextlib.asynccontextmanager
async def registered(port: int, cache: FakeCache, membership: Membership) -> AsyncIterator[Registration]:
    ref = common_pb2.WorkerRef(worker_id="decode-0", epoch=5)
    hello = pb.Worker(ref=ref, role=pb.ROLE_DECODE, address="d:1", fingerprint="m/f", block_size=16)
    registration = Registration(f"127.0.0.1:{port}", hello, cache, membership)
    task = asyncio.create_task(registration.run())
    try:
        yield registration
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_worker_tells_what_it_holds_then_each_change() -> None:
    cache, membership = FakeCache(), Membership()
    cache.held = {digest(1), digest(2)}
    async with router() as (core, port), registered(port, cache, membership) as registration:
        await until(registration.registered.is_set)
        await until(lambda: len(core.index) == 2)
        assert membership.resolve("decode-0", 5).address == "d:1"
        cache.change(BlocksStored(ROOT, (digest(3),)), BlocksRemoved((digest(1),)))
        await until(lambda: core.index.holders(digest(3)) == {"decode-0"})
        assert core.index.holders(digest(1)) == frozenset()
    assert cache.listeners == []


async def test_a_change_of_load_is_reported() -> None:
    cache = FakeCache()
    async with router() as (core, port), registered(port, cache, Membership()) as registration:
        await until(registration.registered.is_set)
        cache.now = replace(cache.now, running=3)
        registration.touch()
        await until(lambda: [each.load.running for each in core.workers] == [3])


async def test_a_router_that_restarts_hears_everything_anew_while_peers_stay_known() -> None:
    cache, membership = FakeCache(), Membership()
    cache.held = {digest(1)}
    async with contextlib.AsyncExitStack() as stack:
        async with router() as (first, port):
            registration = await stack.enter_async_context(registered(port, cache, membership))
            await until(lambda: len(first.index) == 1)
        await until(lambda: not registration.registered.is_set())
        assert membership.resolve("decode-0", 5).address == "d:1"
        cache.change(BlocksStored(ROOT, (digest(2),)))
        second, _ = await stack.enter_async_context(router(port))
        await until(lambda: len(second.index) == 2)


async def test_a_lost_event_makes_the_worker_register_anew() -> None:
    cache = FakeCache()
    cache.held = {digest(1)}
    async with router() as (core, port), registered(port, cache, Membership()):
        await until(lambda: len(core.index) == 1)
        (life,) = core.workers
        life.next_event = 99
        cache.change(BlocksStored(ROOT, (digest(2),)))
        await until(lambda: [each for each in core.workers if each is not life] != [] and len(core.index) == 2)


async def test_a_draining_worker_says_so() -> None:
    cache = FakeCache()
    async with router() as (core, port), registered(port, cache, Membership()) as registration:
        await until(registration.registered.is_set)
        await registration.drain(DEADLINE)
        await until(lambda: [each.draining for each in core.workers] == [True])
