"""A router and workers in this process, over real gRPC on free ports."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio

from tests.support.waiting import DEADLINE, until
from tidemill.common.v1 import common_pb2
from tidemill.decode.v1 import decode_service_pb2 as decode_pb
from tidemill.decode.v1 import decode_service_pb2_grpc as decode_grpc
from tidemill.prefill.v1 import prefill_service_pb2 as prefill_pb
from tidemill.prefill.v1 import prefill_service_pb2_grpc as prefill_grpc
from tidemill_common.errors import TidemillError
from tidemill_common.model_dir import ModelProfile
from tidemill_common.rpc import OPTIONS, Boundary, connect
from tidemill_common.server import Service
from tidemill_common.tokens import pack, unpack
from tidemill_decode import service as decode_service
from tidemill_decode.config import Settings as DecodeSettings
from tidemill_engine.worker.process import WorkerProcess
from tidemill_prefill import service as prefill_service
from tidemill_prefill.config import Settings as PrefillSettings
from tidemill_prefill.servicer import PrefillServicer
from tidemill_router.config import Settings as RouterSettings
from tidemill_router.service import RouterProcess

Wrap = Callable[[PrefillServicer], prefill_grpc.PrefillServiceServicer]

ROOT = b"r" * 16
BLOCK = 16


@dataclass
class Served:
    """A service that runs.

    Attributes:
        process: the service.
        server: its gRPC server.
        address: where it listens.
    """

    process: Any
    server: grpc.aio.Server
    address: str


@contextlib.asynccontextmanager
async def serving(name: str, process: Service) -> AsyncIterator[Served]:
    """Serve ``process`` as its own main would, until the block ends."""
    server = grpc.aio.server(interceptors=[Boundary(name)], options=OPTIONS)
    process.attach(server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        await process.start(address)
        yield Served(process, server, address)
    finally:
        await server.stop(0)
        await process.stop()


@dataclass
class Turn:
    """What a turn gave."""

    tokens: list[int] = field(default_factory=list)
    responses: list[decode_pb.GenerateResponse] = field(default_factory=list)

    @property
    def hops(self) -> list[str]:
        return [hop.service for hop in self.responses[-1].hops]


@dataclass
class Fleet:
    """One router, one decode and one prefill worker."""

    model: str
    router: Served
    decode: Served
    prefill: Served
    decode_stub: decode_grpc.DecodeServiceAsyncStub
    prefill_stub: prefill_grpc.PrefillServiceAsyncStub

    def request(self, prompt: Sequence[int], prefilled: bool, max_tokens: int = 24, **more: Any) -> decode_pb.GenerateRequest:
        ref = self.prefill.process.worker.ref if prefilled else None
        fields: dict[str, Any] = {
            "request_id": "turn",
            "root_digest": ROOT,
            "prefix_digest": ROOT,
            "token_ids": pack(prompt),
            "sampling": common_pb2.Sampling(max_tokens=max_tokens),
            "prefill": ref,
            "model_fingerprint": self.model,
            "block_size": BLOCK,
        }
        return decode_pb.GenerateRequest(**(fields | more))

    async def generate(self, request: decode_pb.GenerateRequest) -> Turn:
        turn = Turn()
        async for response in self.decode_stub.Generate(request, timeout=DEADLINE):
            turn.responses.append(response)
            turn.tokens += unpack(response.token_ids)
        return turn

    async def idle(self) -> None:
        """Wait until neither worker holds a block or a sequence."""
        for stub, message in (
            (self.decode_stub, decode_pb.GetWorkerRequest()),
            (self.prefill_stub, prefill_pb.GetWorkerRequest()),
        ):

            async def idle(stub: Any = stub, message: Any = message) -> bool:
                worker = await stub.GetWorker(message, timeout=DEADLINE)
                return bool(worker.used_blocks == 0 and worker.sequences == 0)

            await until(idle)


def worker_settings(model: Path, router: str) -> dict[str, Any]:
    """Settings of a small worker."""
    return {
        "model_dir": model, "router": router, "node": "node", "kv_bytes": 8 << 20, "threads": 1, "prefill_chunk": 32,
    }  # fmt: skip


def _with_faults(process: WorkerProcess, wrap: Wrap) -> WorkerProcess:
    def add(server: grpc.aio.Server) -> str:
        prefill_grpc.add_PrefillServiceServicer_to_server(wrap(PrefillServicer(process.worker)), server)
        return "tidemill.prefill.v1.PrefillService"

    async def close() -> None:
        """Nothing of its own to free."""

    return WorkerProcess(process.worker, add, close)


def _knows(process: WorkerProcess, ref: common_pb2.WorkerRef) -> bool:
    with contextlib.suppress(TidemillError):
        return bool(process.worker.membership.resolve(ref.worker_id, ref.epoch))
    return False


@contextlib.asynccontextmanager
async def fleet(model: Path, prefill_model: Path | None = None, wrap: Wrap = lambda servicer: servicer) -> AsyncIterator[Fleet]:
    """Run a fleet. ``prefill_model`` is the prefill worker's, if not ``model``; ``wrap`` may put faults around its servicer."""
    async with contextlib.AsyncExitStack() as stack:
        router = await stack.enter_async_context(serving("router", RouterProcess(RouterSettings(node="node"))))
        # Nobody listens at the second address: one router that is away must not matter.
        settings = worker_settings(model, f"{router.address},127.0.0.1:1")
        prefill_settings = settings | {"model_dir": prefill_model or model, "worker_id": "prefill-0"}
        prefiller = _with_faults(prefill_service.build(PrefillSettings(**prefill_settings)), wrap)
        decoder = decode_service.build(DecodeSettings(**settings | {"worker_id": "decode-0"}))
        prefill_served = await stack.enter_async_context(serving("prefill", prefiller))
        decode_served = await stack.enter_async_context(serving("decode", decoder))
        channels = [await stack.enter_async_context(connect(each.address)) for each in (decode_served, prefill_served)]
        ref = prefiller.worker.ref
        await until(lambda: _knows(decoder, ref))
        yield Fleet(
            ModelProfile.load(model).fingerprint,
            router,
            decode_served,
            prefill_served,
            decode_grpc.DecodeServiceStub(channels[0]),
            prefill_grpc.PrefillServiceStub(channels[1]),
        )
