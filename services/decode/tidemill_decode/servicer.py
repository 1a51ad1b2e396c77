"""Maps DecodeService to the engine and to the prefill workers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from tidemill.decode.v1 import decode_service_pb2 as pb
from tidemill.decode.v1 import decode_service_pb2_grpc as pb_grpc
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.rpc import remaining
from tidemill_decode import metrics
from tidemill_decode.clients import PrefillClients
from tidemill_decode.turn import Turn
from tidemill_engine.engine import Engine
from tidemill_engine.request import EngineRequest
from tidemill_engine.worker import messages
from tidemill_engine.worker.membership import Peer
from tidemill_engine.worker.worker import Worker

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class DecodeServicer(pb_grpc.DecodeServiceServicer):
    """DecodeService of one worker."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.clients = PrefillClients()

    async def Generate(  # noqa: N802 - the proto's name
        self, request: pb.GenerateRequest, context: Context
    ) -> AsyncIterator[pb.GenerateResponse]:
        """The tokens of one turn, those ready together in one message."""
        started = time.monotonic()
        engine = self.worker.engine
        wanted = _read(request, engine)
        deadline = started + remaining(context, self.worker.settings.turn_seconds)
        turn = Turn(self.worker, wanted, request.sampling, started, deadline)
        try:
            async with asyncio.timeout(deadline - started):
                with self.worker.turn():
                    async with contextlib.aclosing(turn.responses(self.clients, self._peer(request))) as responses:
                        async for response in responses:
                            yield response
        except TimeoutError as error:
            raise TidemillError(Reason.DEADLINE_EXCEEDED, "the turn took longer than its deadline") from error

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

    def _peer(self, request: pb.GenerateRequest) -> Peer | None:
        """The prefill worker to pull from, by what the routers said; None where this worker computes the prompt itself."""
        # A resumed turn's first token depends on what was generated already, which only this worker's sampler is told.
        if not request.HasField("prefill") or request.resumed_tokens or not request.sampling.max_tokens:
            return None
        try:
            return self.worker.membership.resolve(request.prefill.worker_id, request.prefill.epoch)
        except TidemillError as error:
            log.warning("%s: %s", request.request_id, error.message)
            metrics.FALLBACKS.labels(error.reason.value).inc()
            return None


def _read(request: pb.GenerateRequest, engine: Engine) -> EngineRequest:
    if request.model_fingerprint != engine.model_fingerprint:
        message = f"model {request.model_fingerprint!r} was asked, this worker runs {engine.model_fingerprint!r}"
        raise TidemillError(Reason.MODEL_MISMATCH, message, "model_fingerprint")
    if request.block_size != engine.block_size:
        message = f"blocks of {request.block_size} tokens were named, this worker's have {engine.block_size}"
        raise TidemillError(Reason.MODEL_MISMATCH, message, "block_size")
    ids = messages.ids(request.token_ids, "token_ids")
    if not ids or request.resumed_tokens > len(ids):
        raise TidemillError(Reason.INVALID_REQUEST, f"{len(ids)} tokens, {request.resumed_tokens} resumed", "token_ids")
    return EngineRequest(
        request_id=request.request_id,
        root_digest=messages.digest(request.root_digest, "root_digest"),
        prefix_digest=messages.digest(request.prefix_digest, "prefix_digest"),
        prefix_blocks=request.prefix_blocks,
        token_ids=ids,
        sampling=messages.sampling(request.sampling),
        resumed_tokens=request.resumed_tokens,
    )
