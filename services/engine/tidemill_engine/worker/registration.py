"""Client of RouterService.Register: one stream per router, renewed for ever."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

import grpc.aio

from tidemill.router.v1 import router_service_pb2 as pb
from tidemill.router.v1 import router_service_pb2_grpc as pb_grpc
from tidemill_common.rpc import connect, from_rpc_error
from tidemill_engine.events import BlockEvent, BlocksRemoved, BlocksStored
from tidemill_engine.stats import EngineStats
from tidemill_engine.worker.feed import Feed, Source
from tidemill_engine.worker.membership import Membership, Peer

log = logging.getLogger(__name__)

REPORT_SECONDS = 1.0
SETTLE_SECONDS = 0.05
FIRST_BACKOFF_SECONDS = 0.1
LAST_BACKOFF_SECONDS = 5.0


Call = grpc.aio.StreamStreamCall[pb.RegisterRequest, pb.RegisterResponse]


class EventSource(Source, Protocol):
    """The part of the engine that a registration reads."""

    def subscribe(self, callback: Callable[[Sequence[BlockEvent]], None]) -> Callable[[], None]:
        """Tell block events from now on."""
        ...


class Registration:
    """This worker's stream to one router.

    Load is reported every second, and at most 20 times a second while something changes.

    Attributes:
        registered: set while the router has this worker in its membership.
    """

    def __init__(self, router: str, hello: pb.Worker, source: EventSource, membership: Membership) -> None:
        self.router = router
        self.hello = hello
        self.registered = asyncio.Event()
        self._source = source
        self._membership = membership
        self._feed = Feed(source)
        self._draining = False
        self._told_to_drain = asyncio.Event()

    async def run(self) -> None:
        """Register, and again whenever the stream ends, until cancelled."""
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            try:
                await self._stream()
            except grpc.aio.AioRpcError as error:
                log.warning("router %s: %s", self.router, from_rpc_error(error).sentence())
            except asyncio.CancelledError:
                if _cancelled():
                    raise
                log.exception("router %s: the stream was cancelled on this side", self.router)
            if _cancelled():
                return  # a cancel that meets a failing call is reported by gRPC as the failure alone
            if self.registered.is_set():
                backoff = FIRST_BACKOFF_SECONDS
            self.registered.clear()
            await asyncio.sleep(backoff * random.uniform(0.5, 1.0))
            backoff = min(2 * backoff, LAST_BACKOFF_SECONDS)

    def touch(self) -> None:
        """Report load soon: it changed."""
        self._feed.touch()

    async def drain(self, seconds: float) -> None:
        """Tell the router that this worker drains; waits ``seconds`` at most for a router that listens."""
        self._draining = True
        self._feed.drain()
        if self.registered.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._told_to_drain.wait()

    async def _stream(self) -> None:
        feed = self._feed = Feed(self._source)
        if self._draining:
            feed.drain()
        unsubscribe = self._source.subscribe(feed.push)
        try:
            async with connect(self.router) as channel:
                call = pb_grpc.RouterServiceStub(channel).Register()  # it lasts as long as this worker: no deadline
                writer = asyncio.create_task(self._write(call, feed))
                try:
                    async for response in call:
                        self._read(response)
                finally:
                    writer.cancel()
                    await asyncio.wait({writer})
        finally:
            unsubscribe()

    async def _write(self, call: Call, feed: Feed) -> None:
        try:
            async for message in self._messages(feed):
                await call.write(message)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the reader meets the stream's end too
        finally:
            call.cancel()

    def _read(self, response: pb.RegisterResponse) -> None:
        if not self.registered.is_set():
            log.info("registered with router %s", self.router)
        self.registered.set()
        peers = [Peer(each.ref.worker_id, each.ref.epoch, each.address) for each in response.workers]
        self._membership.update(self.router, peers)

    async def _messages(self, feed: Feed) -> AsyncIterator[pb.RegisterRequest]:
        hello = pb.Worker()
        hello.CopyFrom(self.hello)
        hello.load.CopyFrom(load(self._source.stats()))
        yield pb.RegisterRequest(hello=hello)
        told = False
        while True:
            for number, events in feed.take():
                yield pb.RegisterRequest(events=pb.BlockEvents(sequence=number, events=[event(each) for each in events]))
            if feed.draining and not told:
                told = True
                yield pb.RegisterRequest(drain=pb.Drain())
                self._told_to_drain.set()
            yield pb.RegisterRequest(load=load(self._source.stats()))
            await feed.changed(REPORT_SECONDS)
            await asyncio.sleep(SETTLE_SECONDS)


def _cancelled() -> bool:
    """Whether this task was cancelled, not only the call that it reads."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def load(stats: EngineStats) -> pb.Load:
    """A load report."""
    return pb.Load(
        running=stats.running,
        waiting=stats.waiting,
        pending_prefill_tokens=stats.pending_prefill_tokens,
        free_blocks=stats.free_blocks,
        total_blocks=stats.total_blocks,
    )


def event(change: BlockEvent) -> pb.BlockEvent:
    """A block event."""
    match change:
        case BlocksStored(parent_digest, digests):
            return pb.BlockEvent(stored=pb.BlocksStored(parent_digest=parent_digest, block_digests=b"".join(digests)))
        case BlocksRemoved(digests):
            return pb.BlockEvent(removed=pb.BlocksRemoved(block_digests=b"".join(digests)))
        case _:
            return pb.BlockEvent(cleared=pb.BlocksCleared())
