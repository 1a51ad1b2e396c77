"""The scheduler: one queue, in which computed tokens chase known tokens under a token budget. Pure, no tensors.

There are no prefill and decode phases (the idea of vLLM's v1 scheduler): a step takes first the sequences that lack one token,
then chunks of longer prompts, oldest first. A sequence is admitted when its known tokens fit into free blocks. One that grows
into a full pool takes the blocks of the latest sequence after it, which is computed anew later, or waits when there is none.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tidemill_common.errors import Reason, TidemillError
from tidemill_engine.block_pool import BlockPool
from tidemill_engine.sequence import Sequence, SequenceKind, SequenceState


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next ``count`` tokens of one sequence, from ``start``."""

    sequence: Sequence
    start: int
    count: int

    @property
    def reaches_end(self) -> bool:
        """Whether the chunk's last token is the last known one: its logits give the next."""
        return self.start + self.count == len(self.sequence.tokens)


@dataclass(slots=True)
class Plan:
    """What one step does: sequences admitted now, and chunks to compute."""

    admitted: list[Sequence] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)


class Scheduler:
    """Decides what each step computes; owns every sequence from ``add`` to ``end``."""

    def __init__(self, pool: BlockPool, *, token_budget: int, max_running: int, max_waiting: int) -> None:
        if not 1 <= max_running <= token_budget:
            raise ValueError(f"a step of {token_budget} tokens can't serve {max_running} sequences")
        self.pool = pool
        self.preemptions = 0
        self._token_budget = token_budget
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._running: list[Sequence] = []
        self._waiting: deque[Sequence] = deque()

    @property
    def running(self) -> int:
        """Sequences that hold blocks."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences that wait for admission."""
        return len(self._waiting)

    @property
    def pending_prefill_tokens(self) -> int:
        """Known tokens still to be computed here, decoding sequences' last ones aside."""
        waiting = sum(sequence.remaining for sequence in self._waiting)
        running = (s.remaining for s in self._running if s.state is SequenceState.RUNNING)
        return waiting + sum(count for count in running if count > 1)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. Raises TidemillError(OVERLOADED) when the queue is full."""
        if len(self._waiting) >= self._max_waiting:
            raise TidemillError(Reason.OVERLOADED, f"{len(self._waiting)} sequences wait already")
        self._waiting.append(sequence)

    def schedule(self) -> Plan:
        """Admit what fits, then choose this step's chunks; at most ``token_budget`` tokens."""
        plan = Plan(admitted=self._admit())
        budget = self._token_budget
        ready = [sequence for sequence in self._running if sequence.state is SequenceState.RUNNING]
        for sequence in sorted(ready, key=lambda each: each.remaining > 1):
            count = min(budget, sequence.remaining)
            if count and sequence.state is SequenceState.RUNNING and self._grow(sequence, count):
                plan.chunks.append(Chunk(sequence, sequence.computed, count))
                budget -= count
        # A sequence that grows may have preempted one that was chosen before it.
        plan.chunks = [chunk for chunk in plan.chunks if chunk.sequence.state is SequenceState.RUNNING]
        return plan

    def advance(self, sequence: Sequence, count: int) -> None:
        """The next ``count`` tokens' KV is in its blocks: register what became full."""
        sequence.computed += count
        size = self.pool.block_size
        while sequence.registrable and len(sequence.digests) < sequence.computed // size:
            index = len(sequence.digests)
            parent = sequence.digests[-1] if index else sequence.root
            packed = sequence.packed(index * size, (index + 1) * size)
            registered = self.pool.register(sequence.blocks[index], parent, packed)
            if registered is None:
                sequence.registrable = False
                return
            sequence.blocks[index], digest = registered
            sequence.digests.append(digest)

    def resume(self, sequence: Sequence) -> None:
        """Imports are over, whole or not: compute the rest here. The last known token is computed in any case."""
        sequence.kind = SequenceKind.GENERATE
        sequence.state = SequenceState.RUNNING
        sequence.computed = min(sequence.computed, len(sequence.tokens) - 1)

    def drain(self, sequence: Sequence) -> None:
        """Nothing is left to compute; the blocks stay until ``end``."""
        sequence.state = SequenceState.DRAINING

    def end(self, sequence: Sequence) -> None:
        """Drop a sequence in any state; its blocks are free (and cached) afterwards. A second call does nothing."""
        if sequence.state is SequenceState.WAITING:
            if sequence in self._waiting:
                self._waiting.remove(sequence)
        elif sequence.state is not SequenceState.ENDED:
            self._running.remove(sequence)
            self._strip(sequence)
        sequence.state = SequenceState.ENDED

    def _admit(self) -> list[Sequence]:
        admitted: list[Sequence] = []
        while self._waiting and len(self._running) < self._max_running and self._give_blocks(self._waiting[0]):
            sequence = self._waiting.popleft()
            remote = sequence.kind is SequenceKind.REMOTE
            sequence.state = SequenceState.IMPORTING if remote else SequenceState.RUNNING
            self._running.append(sequence)
            admitted.append(sequence)
        return admitted

    def _give_blocks(self, sequence: Sequence) -> bool:
        size, known = self.pool.block_size, len(sequence.tokens)
        # The last token is never taken from the cache: its logits are needed.
        matched = self.pool.match(sequence.root, sequence.packed(0, known), limit=(known - 1) // size)
        fresh = -(-known // size) - len(matched)
        # One block of growth for each running sequence keeps an admission from being preempted at once.
        if self.pool.free_blocks - self.pool.unused_among(matched) < fresh + len(self._running):
            return False
        self.pool.share(matched)
        sequence.blocks = matched + (self.pool.allocate(fresh) or [])
        sequence.computed = len(matched) * size
        sequence.digests = [self.pool.digest_of(block) for block in matched]
        sequence.registrable = True
        if sequence.cached_tokens is None:
            sequence.cached_tokens = sequence.computed
        return True

    def _grow(self, sequence: Sequence, count: int) -> bool:
        """Give it blocks for its next ``count`` tokens."""
        while sequence.computed + count > len(sequence.blocks) * self.pool.block_size:
            more = self.pool.allocate(1)
            if more is not None:
                sequence.blocks += more
            elif not self._preempt_after(sequence):
                return False
        return True

    def _preempt_after(self, sequence: Sequence) -> bool:
        later = self._running[self._running.index(sequence) + 1 :]
        victim = next((other for other in reversed(later) if other.preemptable), None)
        if victim is None:
            return False
        self._running.remove(victim)
        self._strip(victim)
        victim.computed = 0
        victim.state = SequenceState.WAITING
        self._waiting.appendleft(victim)
        self.preemptions += 1
        return True

    def _strip(self, sequence: Sequence) -> None:
        self.pool.release(sequence.blocks)
        sequence.blocks = []
        sequence.digests = []
