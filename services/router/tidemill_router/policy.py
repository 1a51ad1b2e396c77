"""The choice among workers: blocks that would have to be computed, weighed against load.

The unit of cost is the computation of one block of prompt::

    cost = uncached_weight * (blocks of the prompt - blocks that the worker holds or will soon hold) + load
    load = pending prompt tokens / block size + running_blocks * running + waiting_blocks * waiting

The lowest cost wins. Work that a cache saves weighs more than work that others brought, so that siblings of a burst wait
for the prefix that one of them computes instead of computing it again elsewhere. A worker with ``busy_waiting`` or more
waiting sequences is passed over while another one is not that busy, whatever it holds. Costs that differ by ``tie_blocks``
or less count as equal: then the session's own worker (rendezvous hashing: a worker that comes or goes moves only its own
sessions), without a session the least loaded, then the first by id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

from tidemill_router.workers import Load


class Why(StrEnum):
    """Why a worker was chosen."""

    CACHE = "cache"
    LOAD = "load"
    SESSION = "session"
    ONLY = "only"


@dataclass(frozen=True, slots=True)
class Weights:
    """Numbers of the cost formula.

    Attributes:
        uncached_weight: cost of one uncached block, blocks.
        running_blocks: cost of a running sequence, blocks.
        waiting_blocks: cost of a waiting sequence, blocks.
        busy_waiting: waiting sequences from which on a worker counts as too busy.
        tie_blocks: difference of cost that still counts as equal, blocks.
    """

    uncached_weight: float = 2.0
    running_blocks: float = 4.0
    waiting_blocks: float = 16.0
    busy_waiting: int = 4
    tie_blocks: float = 0.5


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker that may be chosen.

    Attributes:
        worker_id: its id.
        held: blocks of the prompt that it holds or will soon hold.
        load: its load, blocks.
        busy: it has too many waiting sequences.
    """

    worker_id: str
    held: int
    load: float
    busy: bool = False

    def cost(self, blocks: int, weights: Weights) -> float:
        """Cost of a prompt of ``blocks`` full blocks here."""
        return weights.uncached_weight * max(0, blocks - self.held) + self.load


def load_blocks(load: Load, block_size: int, weights: Weights) -> float:
    """A worker's load in blocks of prompt computation."""
    pending = load.pending_prefill_tokens / block_size
    return pending + weights.running_blocks * load.running + weights.waiting_blocks * load.waiting


def choose(candidates: Sequence[Candidate], blocks: int, session: str, weights: Weights) -> tuple[Candidate, Why]:
    """The candidate for a prompt of ``blocks`` full blocks, and why. Raises ValueError when there are none."""
    if not candidates:
        raise ValueError("no candidates")
    if len(candidates) == 1:
        return candidates[0], Why.ONLY
    able = [each for each in candidates if not each.busy] or list(candidates)
    lowest = min(each.cost(blocks, weights) for each in able)
    best = [each for each in able if each.cost(blocks, weights) <= lowest + weights.tie_blocks]
    if len(best) > 1 and session:
        return max(best, key=lambda each: _affinity(session, each.worker_id)), Why.SESSION
    chosen = min(best, key=lambda each: (each.load, each.worker_id))
    return chosen, _why(chosen, candidates)


def _why(chosen: Candidate, candidates: Sequence[Candidate]) -> Why:
    held = [each.held for each in candidates]
    return Why.CACHE if chosen.held == max(held) > min(held) else Why.LOAD


def _affinity(session: str, worker_id: str) -> bytes:
    return blake2b(f"{len(session)}:{session}:{worker_id}".encode(), digest_size=8).digest()
