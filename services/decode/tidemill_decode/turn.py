"""One turn on a decode worker: its tokens, and beside them the transfer of its prompt's KV."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator

from tidemill.common.v1 import common_pb2
from tidemill.decode.v1 import decode_service_pb2 as pb
from tidemill.prefill.v1 import prefill_service_pb2
from tidemill_common import cpu
from tidemill_common.telemetry import TTFT_SECONDS
from tidemill_common.tokens import pack
from tidemill_decode import metrics
from tidemill_decode.clients import Part, PrefillClients
from tidemill_decode.pull import Pull
from tidemill_engine.generation import Generation
from tidemill_engine.outputs import Admission, Step
from tidemill_engine.request import EngineRequest
from tidemill_engine.worker import metrics as worker_metrics
from tidemill_engine.worker.membership import Peer
from tidemill_engine.worker.worker import Worker

SERVICE = "decode"
LAST_KV_SECONDS = 1.0


class Turn:
    """Runs ``request``, whose sampling is ``sampling`` on the wire; ``started`` and ``deadline`` are of time.monotonic()."""

    def __init__(
        self,
        worker: Worker,
        request: EngineRequest,
        sampling: common_pb2.Sampling,
        started: float,
        deadline: float,
    ) -> None:
        self.worker = worker
        self.request = request
        self.sampling = sampling
        self.started = started
        self.deadline = deadline
        self._pull: Pull[common_pb2.Hop] | None = None
        self._waiting = True

    async def responses(self, clients: PrefillClients, peer: Peer | None) -> AsyncGenerator[pb.GenerateResponse]:
        """Messages of the turn, its KV pulled from ``peer`` if there is one. Closing this frees blocks and transfer."""
        held = self.request.prefix_blocks * self.worker.engine.block_size
        worker_metrics.PROMPT_TOKENS.labels(SERVICE).inc(held + len(self.request.token_ids))
        async with contextlib.AsyncExitStack() as stack:
            generation = await self._begin(clients, peer, stack)
            async for step in generation:
                yield await self._response(step)

    async def _begin(self, clients: PrefillClients, peer: Peer | None, stack: contextlib.AsyncExitStack) -> Generation:
        engine = self.worker.engine
        if peer is None:
            return await stack.enter_async_context(contextlib.aclosing(engine.generate(self.request)))
        metrics.PULLS.inc()
        stack.callback(self._count_pull)
        generation = await stack.enter_async_context(contextlib.aclosing(engine.generate_remote(self.request)))
        self._pull = await stack.enter_async_context(contextlib.aclosing(Pull[common_pb2.Hop](generation, engine.block_size)))
        self._pull.start(lambda admission: self._ask(clients, peer, admission))
        return generation

    def _ask(self, clients: PrefillClients, peer: Peer, admission: Admission) -> AsyncGenerator[Part]:
        request = prefill_service_pb2.PrefillRequest(
            request_id=self.request.request_id,
            root_digest=self.request.root_digest,
            token_ids=pack(admission.prompt_ids),
            held_blocks=admission.held_blocks,
            sampling=self.sampling,
            fingerprint=self.worker.engine.fingerprint,
        )
        return clients.prefill(peer, request, max(0.0, self.deadline - time.monotonic()))

    async def _response(self, step: Step) -> pb.GenerateResponse:
        response = pb.GenerateResponse(token_ids=pack(step.token_ids))
        if step.cached_tokens is not None:
            response.cached_tokens = step.cached_tokens
            response.transferred_tokens = self._pull.transferred_tokens if self._pull else 0
            worker_metrics.CACHED_TOKENS.labels(SERVICE).inc(step.cached_tokens)
        if step.token_ids and self._waiting:
            self._waiting = False
            TTFT_SECONDS.labels(SERVICE, cpu.node_type()).observe(time.monotonic() - self.started)
        worker_metrics.GENERATED_TOKENS.labels(SERVICE).inc(len(step.token_ids))
        if step.finish is not None:
            response.finish_reason = common_pb2.FinishReason.ValueType(step.finish.value)
            response.hops.extend(await self._hops())
        return response

    async def _hops(self) -> list[common_pb2.Hop]:
        own = self.worker.identity.hop(self.started)
        if self._pull is None:
            return [own]
        await self._pull.settle(LAST_KV_SECONDS)
        return [own] if self._pull.hop is None else [self._pull.hop, own]

    def _count_pull(self) -> None:
        if self._pull is None:
            return
        worker_metrics.TRANSFERRED_TOKENS.labels(SERVICE).inc(self._pull.imported_tokens)
        if self._pull.failure:
            metrics.FALLBACKS.labels(self._pull.failure.reason.value).inc()
