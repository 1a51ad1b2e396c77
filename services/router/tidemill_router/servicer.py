"""Maps RouterService to the core."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio

from tidemill.router.v1 import router_service_pb2 as pb
from tidemill.router.v1 import router_service_pb2_grpc as pb_grpc
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.telemetry import Identity
from tidemill_router import messages, metrics
from tidemill_router.routing import Route, Router
from tidemill_router.workers import Registration, Role

log = logging.getLogger(__name__)

HELLO_SECONDS = 10.0
Context = grpc.aio.ServicerContext[Any, Any]


class RouterServicer(pb_grpc.RouterServiceServicer):
    """RouterService. ``clock`` gives seconds that never go back."""

    def __init__(self, router: Router, identity: Identity, clock: Callable[[], float] = time.monotonic) -> None:
        self.router = router
        self.identity = identity
        self.clock = clock
        self._changed = asyncio.Event()
        self._closing = False

    async def Route(self, request: pb.RouteRequest, context: Context) -> pb.RouteResponse:  # noqa: N802 - the proto's name
        """Choose the workers of a turn."""
        started = time.monotonic()
        prompt = messages.prompt(request)
        route = self.router.route(prompt, self.clock())
        _count(route, prompt.tokens)
        return pb.RouteResponse(
            decode=messages.worker(route.decode),
            decode_blocks=route.decode_blocks,
            prefill=messages.worker(route.prefill) if route.prefill else None,
            prefill_blocks=route.prefill_blocks,
            reason=route.why.value,
            hop=self.identity.hop(started),
        )

    async def ListWorkers(self, request: pb.ListWorkersRequest, context: Context) -> pb.ListWorkersResponse:  # noqa: N802
        """The registered workers by id."""
        workers = [messages.worker(each) for each in self.router.workers]
        return pb.ListWorkersResponse(workers=workers, indexed_blocks=len(self.router.index))

    async def Register(  # noqa: N802 - the proto's name
        self, request_iterator: AsyncIterator[pb.RegisterRequest], context: Context
    ) -> AsyncIterator[pb.RegisterResponse]:
        """A worker's stream for as long as it lives; the membership goes back at once and at each change."""
        registration = await self._hello(request_iterator)
        reader = asyncio.create_task(self._read(registration, request_iterator))
        reader.add_done_callback(lambda _: self._announce())
        try:
            seen = -1
            while not (reader.done() or registration.ended or self._closing):
                changed = self._changed
                if seen != self.router.workers.version:
                    seen = self.router.workers.version
                    yield pb.RegisterResponse(workers=[messages.worker(each) for each in self.router.workers])
                else:
                    await changed.wait()
            if registration.ended:
                raise registration.ended
            if self._closing:
                raise TidemillError(Reason.UNAVAILABLE, "the router stops")
            await reader
        finally:
            reader.cancel()
            self._drop(registration, TidemillError(Reason.WORKER_LOST, "its stream ended"))

    def close(self) -> None:
        """End all workers' streams; they would last as long as the workers."""
        self._closing = True
        self._announce()

    async def watch(self, interval: float) -> None:
        """Drop silent workers, every ``interval`` seconds, for as long as the task runs."""
        while True:
            await asyncio.sleep(interval)
            self.drop_silent()

    def drop_silent(self) -> None:
        """Drop the workers that said nothing for too long and end their streams."""
        for each in self.router.drop_silent(self.clock()):
            log.warning("dropped %s: %s", each.worker_id, each.ended)
            metrics.SILENT.inc()
            self._announce()

    async def _hello(self, requests: AsyncIterator[pb.RegisterRequest]) -> Registration:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                first = await anext(requests, None)
        except TimeoutError as error:
            raise TidemillError(Reason.DEADLINE_EXCEEDED, f"no hello within {HELLO_SECONDS:g} s", "hello") from error
        if first is None or first.WhichOneof("kind") != "hello":
            raise TidemillError(Reason.INVALID_REQUEST, "the first message must carry hello", "hello")
        registration = self.router.register(messages.description(first.hello), self.clock())
        registration.load = messages.load(first.hello.load)
        log.info("registered %s, epoch %d, at %s", registration.worker_id, registration.about.epoch, registration.about.address)
        self._announce()
        return registration

    async def _read(self, registration: Registration, requests: AsyncIterator[pb.RegisterRequest]) -> None:
        async for request in requests:
            if registration.ended:
                return
            registration.heard = self.clock()
            try:
                self._apply(registration, request)
            except TidemillError as error:
                if error.reason is Reason.EVENT_GAP:
                    metrics.EVENT_GAPS.inc()
                self._drop(registration, error)
                raise

    def _apply(self, registration: Registration, request: pb.RegisterRequest) -> None:
        match request.WhichOneof("kind"):
            case "load":
                registration.load = messages.load(request.load)
            case "events":
                registration.count_events(request.events.sequence, len(request.events.events))
                for event in request.events.events:
                    self._apply_event(registration.worker_id, event)
                metrics.INDEXED_BLOCKS.set(len(self.router.index))
            case "drain":
                log.info("%s drains", registration.worker_id)
                self.router.workers.drain(registration)
            case other:
                raise TidemillError(Reason.INVALID_REQUEST, f"unexpected message {other!r} in mid-stream", "kind")

    def _apply_event(self, worker_id: str, event: pb.BlockEvent) -> None:
        match event.WhichOneof("kind"):
            case "stored":
                digests = messages.unpack_digests(event.stored.block_digests, "block_digests")
                self.router.index.store(worker_id, event.stored.parent_digest, digests)
            case "removed":
                self.router.index.remove(worker_id, messages.unpack_digests(event.removed.block_digests, "block_digests"))
            case "cleared":
                self.router.clear(worker_id)
            case other:
                raise TidemillError(Reason.INVALID_REQUEST, f"unknown block event {other!r}", "events")

    def _drop(self, registration: Registration, why: TidemillError) -> None:
        if registration.ended is None:
            log.info("dropped %s: %s", registration.worker_id, why)
            self.router.drop(registration, why)
            self._announce()

    def _announce(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        for role in Role:
            metrics.WORKERS.labels(role.value).set(sum(each.about.role is role for each in self.router.workers))
        metrics.INDEXED_BLOCKS.set(len(self.router.index))


def _count(route: Route, tokens: int) -> None:
    metrics.ROUTES.labels(route.why.value).inc()
    metrics.PROMPT_TOKENS.inc(tokens)
    metrics.HELD_TOKENS.inc(route.decode_blocks * route.decode.about.block_size)
    if route.prefill:
        metrics.PREFILLS.inc()
