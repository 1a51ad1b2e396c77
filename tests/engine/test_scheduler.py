from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill_common.errors import Reason, TidemillError
from tidemill_engine.block_pool import BlockPool
from tidemill_engine.scheduler import Plan, Scheduler
from tidemill_engine.sequence import Sequence, SequenceKind, SequenceState

SIZE = 2
ROOT = b"r" * 16
STEP_LIMIT = 3000


def make(blocks: int = 16, budget: int = 8, max_running: int = 4, max_waiting: int = 100) -> Scheduler:
    pool = BlockPool(blocks, SIZE)
    return Scheduler(pool, token_budget=budget, max_running=max_running, max_waiting=max_waiting)


def compute(scheduler: Scheduler, plan: Plan, token: int = 7) -> None:
    """Stand in for the model: each chunk that reaches the end gives a token."""
    for chunk in plan.chunks:
        scheduler.advance(chunk.sequence, chunk.count)
        if chunk.sequence.remaining == 0:
            chunk.sequence.tokens.append(token)


def test_decoding_sequences_go_before_prompts_and_prompts_are_cut_to_the_budget() -> None:
    scheduler = make(budget=8)
    first, second = Sequence(ROOT, range(3)), Sequence(ROOT, range(100, 120))
    scheduler.add(first)
    compute(scheduler, scheduler.schedule())
    scheduler.add(second)
    plan = scheduler.schedule()
    assert [(chunk.sequence, chunk.count) for chunk in plan.chunks] == [(first, 1), (second, 7)]
    assert not plan.chunks[1].reaches_end
    assert plan.admitted == [second]


def test_a_hit_on_the_whole_prompt_computes_the_last_block_anew() -> None:
    scheduler = make()
    for cached in (0, 2):
        sequence = Sequence(ROOT, range(4))
        scheduler.add(sequence)
        plan = scheduler.schedule()
        assert sum(chunk.count for chunk in plan.chunks) == 4 - cached
        assert sequence.cached_tokens == cached
        compute(scheduler, plan)
        scheduler.end(sequence)


def test_generated_tokens_are_cached_too() -> None:
    scheduler = make()
    sequence = Sequence(ROOT, [1, 2, 3])
    scheduler.add(sequence)
    for _ in range(4):
        compute(scheduler, scheduler.schedule())
    scheduler.end(sequence)
    following = Sequence(ROOT, [1, 2, 3, 7, 7, 7, 7, 5])
    scheduler.add(following)
    scheduler.schedule()
    assert following.cached_tokens == 6


def test_a_full_queue_refuses() -> None:
    scheduler = make(max_waiting=1)
    scheduler.add(Sequence(ROOT, [1]))
    refused = Sequence(ROOT, [2])
    with pytest.raises(TidemillError) as caught:
        scheduler.add(refused)
    assert caught.value.reason is Reason.OVERLOADED
    scheduler.end(refused)
    assert scheduler.waiting == 1


def test_a_prompt_that_does_not_fit_waits_for_memory() -> None:
    scheduler = make(blocks=4)
    first, second = Sequence(ROOT, range(6)), Sequence(ROOT, range(10, 14))
    scheduler.add(first)
    scheduler.add(second)
    assert scheduler.schedule().admitted == [first]
    assert scheduler.waiting == 1
    scheduler.end(first)
    assert scheduler.schedule().admitted == [second]


def test_the_latest_sequence_gives_way_and_is_computed_anew() -> None:
    scheduler = make(blocks=4)
    first, second = Sequence(ROOT, [1, 2]), Sequence(ROOT, [3, 4])
    scheduler.add(first)
    scheduler.add(second)
    for _ in range(4):
        compute(scheduler, scheduler.schedule())
    assert scheduler.preemptions == 1
    assert (first.state, second.state) == (SequenceState.RUNNING, SequenceState.WAITING)
    assert second.computed == 0
    assert len(second.tokens) > 2
    scheduler.end(first)
    compute(scheduler, scheduler.schedule())
    assert second.state is SequenceState.RUNNING
    assert second.remaining == 1


def test_blocks_that_others_read_or_write_are_never_taken() -> None:
    scheduler = make(blocks=4)
    growing, importing = Sequence(ROOT, [1, 2]), Sequence(ROOT, [3, 4], SequenceKind.REMOTE)
    scheduler.add(growing)
    scheduler.add(importing)
    for _ in range(8):
        compute(scheduler, scheduler.schedule())
    assert importing.state is SequenceState.IMPORTING
    assert len(importing.blocks) == 1
    scheduler.end(importing)
    assert scheduler.schedule().chunks


@dataclass
class Job:
    """One sequence of a random workload."""

    prompt: list[int]
    output: int
    kind: SequenceKind
    abort_at: int | None
    first_token: bool
    sequence: Sequence = field(init=False)

    def __post_init__(self) -> None:
        self.sequence = Sequence(ROOT, self.prompt, self.kind)

    def turn(self, scheduler: Scheduler, step: int) -> None:
        """What the world outside does between steps."""
        sequence = self.sequence
        if self.abort_at == step or sequence.state is SequenceState.DRAINING:
            scheduler.end(sequence)
        elif sequence.state is SequenceState.IMPORTING and sequence.computed < len(self.prompt) - 1:
            scheduler.advance(sequence, min(SIZE, len(self.prompt) - sequence.computed))
        elif sequence.state is SequenceState.IMPORTING and self.first_token and self.output > 1:
            sequence.tokens.append(3)
            scheduler.resume(sequence)
        elif sequence.state is SequenceState.IMPORTING:
            scheduler.resume(sequence)

    def settle(self, scheduler: Scheduler) -> None:
        """What the engine does with a sampled token."""
        sequence = self.sequence
        if self.kind is SequenceKind.PREFILL:
            scheduler.drain(sequence)
        else:
            sequence.tokens.append(3)
            if len(sequence.tokens) >= len(self.prompt) + self.output:
                scheduler.end(sequence)


jobs = st.lists(
    st.builds(
        Job,
        prompt=st.lists(st.integers(0, 2), min_size=1, max_size=12),
        output=st.integers(1, 8),
        kind=st.sampled_from(SequenceKind),
        abort_at=st.none() | st.integers(0, 12),
        first_token=st.booleans(),
    ),
    min_size=1,
    max_size=10,
)


@pytest.mark.requirement("engine:every-request-ends")
@settings(max_examples=150, deadline=None)
@given(jobs, st.integers(10, 24), st.integers(1, 6), st.integers(0, 10))
def test_every_sequence_ends_within_the_budget_and_nothing_leaks(
    work: list[Job], blocks: int, max_running: int, extra_budget: int
) -> None:
    budget = max_running + extra_budget
    scheduler = make(blocks, budget, max_running)
    of = {job.sequence: job for job in work}
    for job in work:
        scheduler.add(job.sequence)
    for step in range(STEP_LIMIT):
        for job in work:
            job.turn(scheduler, step)
        ready = {s for s in of if s.state is SequenceState.RUNNING and s.remaining == 1}
        plan = scheduler.schedule()
        scheduler.pool.check_integrity()
        assert sum(chunk.count for chunk in plan.chunks) <= budget
        assert scheduler.running <= max_running
        served = {chunk.sequence for chunk in plan.chunks}
        assert all(scheduler.pool.free_blocks == 0 or s.state is SequenceState.WAITING for s in ready - served)
        for chunk in plan.chunks:
            reaches_end = chunk.reaches_end
            scheduler.advance(chunk.sequence, chunk.count)
            if reaches_end:
                of[chunk.sequence].settle(scheduler)
        if all(job.sequence.state is SequenceState.ENDED for job in work):
            break
    assert all(job.sequence.state is SequenceState.ENDED for job in work)
    assert scheduler.running == scheduler.waiting == scheduler.pool.used_blocks == 0


@pytest.mark.requirement("engine:abort-frees")
@pytest.mark.parametrize("kind", SequenceKind)
@pytest.mark.parametrize("steps", range(4))
def test_abort_frees_in_any_state(kind: SequenceKind, steps: int) -> None:
    scheduler = make(budget=4)
    sequence = Sequence(ROOT, range(6), kind)
    scheduler.add(sequence)
    for _ in range(steps):
        compute(scheduler, scheduler.schedule())
    scheduler.end(sequence)
    scheduler.end(sequence)
    assert scheduler.running == scheduler.waiting == scheduler.pool.used_blocks == 0
    assert not scheduler.schedule().chunks
