"""One life of a worker: its engine, its registrations, its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

from tidemill.common.v1 import common_pb2
from tidemill.router.v1 import router_service_pb2 as pb
from tidemill_common import cpu
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.telemetry import Identity
from tidemill_engine.engine import Engine
from tidemill_engine.worker import metrics
from tidemill_engine.worker.membership import Membership
from tidemill_engine.worker.registration import Registration
from tidemill_engine.worker.settings import WorkerSettings

log = logging.getLogger(__name__)

DRAIN_NOTICE_SECONDS = 1.0
WATCH_SECONDS = 1.0


class Worker:
    """A prefill or decode worker's process state.

    Attributes:
        ref: its id and the epoch of this life.
        identity: who it is in hops and metrics.
        membership: the other workers, as the routers tell them.
        layers: number of layers of the model; 0 until it is loaded.
    """

    def __init__(self, service: str, role: pb.Role.ValueType, settings: WorkerSettings) -> None:
        self.settings = settings
        self.role = role
        self.identity = Identity(service, settings.node)
        worker_id = settings.worker_id or f"{service}-{settings.node}"
        self.ref = common_pb2.WorkerRef(worker_id=worker_id, epoch=secrets.randbits(63) + 1)
        self.membership = Membership()
        self.layers = 0
        self._engine: Engine | None = None
        self._registrations: list[Registration] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def engine(self) -> Engine:
        """The engine. Raises TidemillError(UNAVAILABLE) while the model loads."""
        if self._engine is None:
            raise TidemillError(Reason.UNAVAILABLE, f"{self.ref.worker_id} still loads its model")
        return self._engine

    async def start(self, address: str) -> dict[str, object]:
        """Load the model and register; returns once one router has this worker in its membership."""
        engine = await asyncio.to_thread(Engine.load, self.settings.model_dir, self.settings.engine())
        engine.start(asyncio.get_running_loop())
        self._engine = engine
        self.layers = _layers(self.settings.model_dir)
        metrics.watch(self.identity.service, engine.stats)
        metrics.ROUTERS.labels(self.identity.service).set_function(self._registered_routers)
        hello = self._hello(engine, address)
        self._registrations = [Registration(each, hello, engine, self.membership) for each in self.settings.routers]
        self._tasks = [asyncio.create_task(each.run()) for each in self._registrations]
        self._tasks.append(asyncio.create_task(self._watch(engine)))
        await self._registered_once()
        return {"worker": self.ref.worker_id}

    async def drain(self) -> None:
        """Tell the routers to send no more; what runs goes on."""
        await asyncio.gather(*(each.drain(DRAIN_NOTICE_SECONDS) for each in self._registrations))

    async def stop(self) -> None:
        """Leave the routers and stop the engine; whatever runs fails with UNAVAILABLE."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._engine is not None:
            await asyncio.to_thread(self._engine.stop)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """A call that changes the load: routers hear of its begin and its end."""
        self._touch()
        try:
            yield
        finally:
            self._touch()

    async def _watch(self, engine: Engine) -> None:
        """End the process when its engine has died, so that whoever runs it starts a new one."""
        while engine.alive:  # noqa: ASYNC110 - a thread that dies sets no event
            await asyncio.sleep(WATCH_SECONDS)
        log.critical("the engine's thread has ended; this worker stops")
        os.kill(os.getpid(), signal.SIGTERM)

    def _touch(self) -> None:
        for each in self._registrations:
            each.touch()

    def _hello(self, engine: Engine, address: str) -> pb.Worker:
        return pb.Worker(
            ref=self.ref,
            role=self.role,
            address=address,
            fingerprint=engine.fingerprint,
            block_size=engine.block_size,
            node_type=cpu.node_type(),
        )

    def _registered_routers(self) -> int:
        return sum(each.registered.is_set() for each in self._registrations)

    async def _registered_once(self) -> None:
        waits = [asyncio.create_task(each.registered.wait()) for each in self._registrations]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


def _layers(model_dir: Path) -> int:
    return int(json.loads((model_dir / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"])
