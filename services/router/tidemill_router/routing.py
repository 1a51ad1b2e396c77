"""The router's core: what workers said, and the choice for each prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidemill_common.errors import Reason, TidemillError
from tidemill_router.index import BlockIndex, Chain
from tidemill_router.policy import Candidate, Weights, Why, choose, load_blocks
from tidemill_router.predictions import Predictions
from tidemill_router.workers import Description, Registration, Role, Workers

MAX_EXPECTED = 1 << 14


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds and times of a router.

    Attributes:
        threshold: tokens uncached on the decode worker above which a prefill worker is chosen; 0 means never.
        silent_seconds: a worker that says nothing for this long is dropped.
        predict_seconds: how long a chosen worker is assumed to hold the prompt soon.
        unreported_seconds: how long a turn just sent counts as load beside the worker's own reports.
        max_blocks: digests in the index.
        max_workers: registered workers.
    """

    threshold: int = 256
    silent_seconds: float = 10.0
    predict_seconds: float = 2.0
    unreported_seconds: float = 0.25
    max_blocks: int = 1 << 18
    max_workers: int = 1024


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of a turn.

    Attributes:
        chain: its full blocks.
        tokens: its length.
        model: fingerprint of the model; empty for any.
        excluded: (worker id, epoch) of workers not to choose.
        session: keeps turns of a session together when all else is equal; may be empty.
    """

    chain: Chain
    tokens: int
    model: str = ""
    excluded: frozenset[tuple[str, int]] = frozenset()
    session: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a turn goes.

    Attributes:
        decode: decode worker.
        decode_blocks: blocks of the prompt that it holds, counted from the first.
        why: why this worker.
        prefill: prefill worker, or None where decode prefills itself.
        prefill_blocks: blocks of the prompt that the prefill worker holds.
    """

    decode: Registration
    decode_blocks: int
    why: Why
    prefill: Registration | None = None
    prefill_blocks: int = 0


class Router:
    """Workers, their blocks, and the choice among them. ``now`` is in seconds and never goes back."""

    def __init__(self, limits: Limits, weights: Weights) -> None:
        self.limits = limits
        self.weights = weights
        self.workers = Workers(limits.max_workers)
        self.index = BlockIndex(limits.max_blocks)
        self._expected = Predictions(limits.predict_seconds, MAX_EXPECTED)

    def register(self, about: Description, now: float) -> Registration:
        """Add a worker with an empty cache. Raises as Workers.register."""
        registration = self.workers.register(about, now)
        self._forget_blocks(about.worker_id)
        return registration

    def drop(self, registration: Registration, why: TidemillError) -> None:
        """Remove a worker and its blocks; a worker that was replaced or dropped already stays as it is."""
        if self.workers.drop(registration, why):
            self._forget_blocks(registration.worker_id)

    def drop_silent(self, now: float) -> list[Registration]:
        """Remove the workers that fell silent; tells which."""
        seconds = self.limits.silent_seconds
        gone = self.workers.silent(now, seconds)
        for each in gone:
            self.drop(each, TidemillError(Reason.WORKER_UNKNOWN, f"{each.worker_id} said nothing for {seconds:g} s"))
        return gone

    def clear(self, worker_id: str) -> None:
        """The worker's cache is empty."""
        self._forget_blocks(worker_id)

    def route(self, prompt: Prompt, now: float) -> Route:
        """Choose the workers of a turn. Raises TidemillError(NO_WORKERS)."""
        able = self._able(prompt)
        decoders = [each for each in able if each.about.role is Role.DECODE]
        if not decoders:
            raise TidemillError(Reason.NO_WORKERS, f"no decode worker of model {prompt.model!r} can be chosen")
        decode, blocks, why = self._choose(decoders, prompt, now)
        uncached = prompt.tokens - blocks * decode.about.block_size
        route = Route(decode, blocks, why)
        if 0 < self.limits.threshold < uncached:
            peers = [each for each in able if each.about.role is Role.PREFILL and _fit(each, decode)]
            route = self._with_prefill(route, peers, prompt, now)
        self._assign(decode, prompt, 0 if route.prefill else uncached, now)
        return route

    def _with_prefill(self, route: Route, peers: Sequence[Registration], prompt: Prompt, now: float) -> Route:
        if not peers:
            return route
        prefill, blocks, _ = self._choose(peers, prompt, now)
        self._assign(prefill, prompt, prompt.tokens - blocks * prefill.about.block_size, now)
        return replace(route, prefill=prefill, prefill_blocks=blocks)

    def _able(self, prompt: Prompt) -> list[Registration]:
        return [
            each
            for each in self.workers
            if not each.draining
            and (each.worker_id, each.about.epoch) not in prompt.excluded
            and each.about.serves(prompt.model)
        ]

    def _choose(self, able: Sequence[Registration], prompt: Prompt, now: float) -> tuple[Registration, int, Why]:
        by_id = {each.worker_id: each for each in able}
        held = self.index.deepest(prompt.chain, by_id)
        expected = self._expected.deepest(self.index.upwards(prompt.chain), by_id, now)
        candidates = [self._candidate(each, max(held[id_], expected[id_]), now) for id_, each in by_id.items()]
        chosen, why = choose(candidates, prompt.chain.blocks, prompt.session, self.weights)
        return by_id[chosen.worker_id], held[chosen.worker_id], why

    def _candidate(self, worker: Registration, held: int, now: float) -> Candidate:
        turns, tokens = worker.unreported(now, self.limits.unreported_seconds)
        load = replace(
            worker.load,
            running=worker.load.running + turns,
            pending_prefill_tokens=worker.load.pending_prefill_tokens + tokens,
        )
        blocks = load_blocks(load, worker.about.block_size, self.weights)
        return Candidate(worker.worker_id, held, blocks, load.waiting >= self.weights.busy_waiting)

    def _assign(self, worker: Registration, prompt: Prompt, uncached: int, now: float) -> None:
        worker.assigned.append((now, uncached))
        self._expected.add(worker.worker_id, prompt.chain.digests, now)

    def _forget_blocks(self, worker_id: str) -> None:
        self.index.clear(worker_id)
        self._expected.drop(worker_id)


def _fit(prefill: Registration, decode: Registration) -> bool:
    ours, theirs = prefill.about, decode.about
    return (ours.fingerprint, ours.block_size) == (theirs.fingerprint, theirs.block_size)
