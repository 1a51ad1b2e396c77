"""Generation of one turn over workers that may go away: routed by what they hold, retried elsewhere, continued after a loss."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final

from tidemill_common.errors import Reason, TidemillError
from tidemill_common.tokens import TOKEN_BYTES, unpack
from tidemill_gateway import metrics
from tidemill_gateway.backends import Chunk, Deadline, Decoder, Finish, Hop, Job, Placement, Prompt, Router, Sampling, WorkerId
from tidemill_gateway.chain import Chain

log = logging.getLogger(__name__)

MAX_FAILURES: Final = 4
LOOKBACK_BLOCKS: Final = 64
RETRY_SECONDS: Final = 0.2

_ELSEWHERE = frozenset(
    {
        Reason.UNAVAILABLE,
        Reason.WORKER_LOST,
        Reason.WORKER_UNKNOWN,
        Reason.OVERLOADED,
        Reason.CANCELLED,
        Reason.INTERNAL,
    }
)


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be generated.

    Attributes:
        request_id: id of the turn, for logs.
        prompt: its tokens.
        known: tokens at the prompt's start that an earlier turn computed; where they end is where the router starts to look.
        sampling: how tokens are chosen.
        session: affinity key; may be empty.
    """

    request_id: str
    prompt: Chain
    known: int
    sampling: Sampling
    session: str = ""


class Generator:
    """Generates on workers that the router chooses. ``recover_seconds`` bounds the wait for one to be there."""

    def __init__(self, router: Router, decoder: Decoder, recover_seconds: float) -> None:
        self.router = router
        self.decoder = decoder
        self.recover_seconds = recover_seconds

    def run(self, order: Order, deadline: Deadline) -> Run:
        """Start a generation; iterate ``Run.chunks``."""
        return Run(self, order, deadline)


@dataclass(slots=True)
class Run:
    """One generation.

    Attributes:
        tokens: the prompt and what was generated so far.
        hops: who served it, in order; complete at the end.
    """

    generator: Generator
    order: Order
    deadline: Deadline
    tokens: Chain = field(init=False)
    hops: list[Hop] = field(default_factory=list)
    _excluded: list[WorkerId] = field(default_factory=list)
    _lost: TidemillError | None = None
    _whole: bool = False

    def __post_init__(self) -> None:
        self.tokens = self.order.prompt

    @property
    def emitted(self) -> int:
        """Tokens generated so far."""
        return self.tokens.length - self.order.prompt.length

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        """Chunks until one says why generation ended. Raises the catalogue error that no other worker could mend."""
        placement: Placement | None = None
        while True:
            if (finish := self._already_finished()) is not None:
                yield Chunk(b"", finish)
                return
            if placement is None:
                placement = await self._place()
            try:
                async with aclosing(self._attempt(placement)) as chunks:
                    async for chunk in chunks:
                        self.tokens = self.tokens.extend(chunk.packed) if chunk.packed else self.tokens
                        yield chunk
                        if chunk.finish is not None:
                            return
                if self.order.sampling.max_tokens == 0:
                    return
                raise TidemillError(Reason.WORKER_LOST, f"{placement.decode.id.name} ended its stream without a reason")
            except TidemillError as error:
                placement = self._after(error, placement)

    def _after(self, error: TidemillError, placement: Placement) -> Placement | None:
        """The same worker, if it is to get the whole prompt; else None. Raises ``error`` when nothing is left to try."""
        if error.reason is Reason.PREFIX_UNKNOWN and not self._whole:
            self._whole = True
            return placement
        if error.reason not in _ELSEWHERE or len(self._excluded) >= MAX_FAILURES:
            raise error
        log.warning("%s: %s failed (%s); trying elsewhere", self.order.request_id, placement.decode.id, error)
        metrics.REROUTED.labels("after_first_token" if self.emitted else "before_first_token").inc()
        self._excluded.append(placement.decode.id)
        self._lost = error
        self._whole = False
        return None

    def _already_finished(self) -> Finish | None:
        """Why nothing is left to generate, when the worker went away after the last token and before saying so."""
        if not self.emitted:
            return None
        sampling = self.order.sampling
        if sampling.forced:
            return Finish.END if self.emitted * TOKEN_BYTES >= len(sampling.forced) else None
        if unpack(self.tokens.packed)[-1] in unpack(sampling.end_token_ids):
            return Finish.END
        return Finish.LENGTH if self.emitted >= sampling.max_tokens else None

    async def _place(self) -> Placement:
        """A worker; waits for one to come (back) when none is there."""
        give_up = Deadline.after(self.generator.recover_seconds)
        while True:
            try:
                placement = await self.generator.router.route(self._prompt(), self._excluded, deadline=self.deadline)
                self._check(placement)
                self.hops.append(placement.hop)
                return placement
            except TidemillError as error:
                if error.reason is not Reason.NO_WORKERS or self._overloaded():
                    raise self._blame(error) from error
                if _over(give_up):
                    raise self._blame(error) from error
            await asyncio.sleep(self.deadline.left(RETRY_SECONDS))

    def _overloaded(self) -> bool:
        return self._lost is not None and self._lost.reason is Reason.OVERLOADED

    def _blame(self, error: TidemillError) -> TidemillError:
        """The error that a client reads when no worker is left: what happened to the last one, if there was one."""
        if self._lost is None or error.reason is not Reason.NO_WORKERS:
            return error
        if self._lost.reason is Reason.OVERLOADED:
            return self._lost
        return TidemillError(Reason.WORKER_LOST, f"no worker is left after {self._excluded[-1].name}: {self._lost.message}")

    def _check(self, placement: Placement) -> None:
        ours, theirs = self.order.prompt.block_size, placement.decode.block_size
        if ours != theirs:
            raise TidemillError(
                Reason.MODEL_MISMATCH,
                f"{placement.decode.id.name} has blocks of {theirs} tokens; TIDEMILL_GATEWAY_BLOCK_SIZE is {ours}",
            )

    def _prompt(self) -> Prompt:
        """The prompt as the router reads it, from a little before the end of what is known, since its index lags behind."""
        known = min(self.order.known // self.tokens.block_size, self.tokens.block_count)
        first = max(0, known - LOOKBACK_BLOCKS)
        after = self.tokens.digests_after(first)
        return Prompt(self.tokens.digest_at(first), first, after, self.tokens.length, self.order.session)

    async def _attempt(self, placement: Placement) -> AsyncGenerator[Chunk, None]:
        job = self._job(placement)
        resumed = job.resumed_tokens > 0
        generated = self.generator.decoder.generate(placement.decode, job, deadline=self.deadline)
        async with aclosing(generated) as chunks:
            async for chunk in chunks:
                self.hops.extend(chunk.hops)
                yield replace(chunk, cached=0) if resumed else chunk

    def _job(self, placement: Placement) -> Job:
        """At least one token always travels: a worker computes the logits of the last one."""
        size = self.tokens.block_size
        held = 0 if self._whole else min(placement.decode_blocks, (self.tokens.length - 1) // size)
        return Job(
            request_id=self.order.request_id,
            root=self.tokens.root,
            prefix_digest=self.tokens.digest_at(held),
            prefix_blocks=held,
            packed=self.tokens.packed_after(held * size),
            sampling=self.order.sampling,
            prefill=placement.prefill,
            block_size=size,
            resumed_tokens=self.emitted,
        )


def _over(deadline: Deadline) -> bool:
    try:
        deadline.left()
    except TidemillError:
        return True
    return False
