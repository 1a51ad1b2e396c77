"""Maps PrefillService to the engine."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from tidemill.prefill.v1 import prefill_service_pb2 as pb
from tidemill.prefill.v1 import prefill_service_pb2_grpc as pb_grpc
from tidemill_common import cpu
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.rpc import remaining
from tidemill_common.telemetry import TTFT_SECONDS
from tidemill_engine.engine import Engine
from tidemill_engine.outputs import FirstToken, KvBlocks
from tidemill_engine.request import EngineRequest
from tidemill_engine.worker import messages, metrics
from tidemill_engine.worker.worker import Worker
from tidemill_prefill.chunks import cut

SERVICE = "prefill"
Context = grpc.aio.ServicerContext[Any, Any]


class PrefillServicer(pb_grpc.PrefillServiceServicer):
    """PrefillService of one worker."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    async def Prefill(  # noqa: N802 - the proto's name
        self, request: pb.PrefillRequest, context: Context
    ) -> AsyncIterator[pb.PrefillResponse]:
        """KV blocks as they are computed, the first token once it is sampled, then who served it."""
        started = time.monotonic()
        engine = self.worker.engine
        wanted = _read(request, engine)
        metrics.PROMPT_TOKENS.labels(SERVICE).inc(len(wanted.token_ids))
        try:
            async with asyncio.timeout(remaining(context, self.worker.settings.turn_seconds)):
                with self.worker.turn():
                    async with contextlib.aclosing(engine.prefill(wanted, request.held_blocks)) as run:
                        async for part in run:
                            for response in self._responses(part, started):
                                yield response
        except TimeoutError as error:
            raise TidemillError(Reason.DEADLINE_EXCEEDED, "prefill took longer than its deadline") from error
        yield pb.PrefillResponse(done=pb.PrefillDone(hop=self.worker.identity.hop(started)))

    async def GetWorker(self, request: pb.GetWorkerRequest, context: Context) -> pb.GetWorkerResponse:  # noqa: N802
        """Who this worker is and what it holds."""
        engine = self.worker.engine
        stats = engine.stats()
        return pb.GetWorkerResponse(
            ref=self.worker.ref,
            fingerprint=engine.fingerprint,
            block_size=engine.block_size,
            used_blocks=stats.used_blocks,
            sequences=stats.sequences,
        )

    def _responses(self, part: KvBlocks | FirstToken, started: float) -> list[pb.PrefillResponse]:
        if isinstance(part, FirstToken):
            TTFT_SECONDS.labels(SERVICE, cpu.node_type()).observe(time.monotonic() - started)
            metrics.CACHED_TOKENS.labels(SERVICE).inc(part.cached_tokens)
            metrics.GENERATED_TOKENS.labels(SERVICE).inc()
            return [pb.PrefillResponse(first_token=pb.FirstToken(token_id=part.token_id, cached_tokens=part.cached_tokens))]
        metrics.TRANSFERRED_TOKENS.labels(SERVICE).inc(part.token_count)
        return [pb.PrefillResponse(chunk=self._chunk(piece)) for piece in cut(part, self.worker.engine.block_size)]

    def _chunk(self, blocks: KvBlocks) -> pb.KvChunk:
        return pb.KvChunk(
            first_block=blocks.first_block,
            token_count=blocks.token_count,
            layer_count=self.worker.layers,
            fingerprint=self.worker.engine.fingerprint,
            checksums=blocks.checksums,
            data=blocks.data,
        )


def _read(request: pb.PrefillRequest, engine: Engine) -> EngineRequest:
    if request.fingerprint != engine.fingerprint:
        message = f"KV of {request.fingerprint!r} was asked, this worker computes {engine.fingerprint!r}"
        raise TidemillError(Reason.MODEL_MISMATCH, message, "fingerprint")
    ids = messages.ids(request.token_ids, "token_ids")
    if not ids or request.held_blocks * engine.block_size > len(ids):
        message = f"{request.held_blocks} held blocks of a prompt of {len(ids)} tokens"
        raise TidemillError(Reason.INVALID_REQUEST, message, "token_ids")
    root = messages.digest(request.root_digest, "root_digest")
    return EngineRequest(request.request_id, root, root, 0, ids, messages.sampling(request.sampling))
