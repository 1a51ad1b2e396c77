from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_common.errors import Reason, TidemillError
from tidemill_common.tokens import pack, unpack
from tidemill_gateway.backends import Chunk, Deadline, Finish, Hop, Job, Placement, Prompt, Sampling, Worker, WorkerId
from tidemill_gateway.chain import Chain
from tidemill_gateway.generation import MAX_FAILURES, Generator, Order

ROOT = b"r" * 16
END = 999
PROMPT = Chain.empty(ROOT, 4).extend(pack(range(10)))
ANSWER = [100, 101, 102, 103, 104, END]
HOP = Hop("router", "n", "t", 0.0, 1)


@dataclass
class FakeRouter:
    """Offers the workers that are not excluded, in order."""

    workers: list[str]
    held: int = 0
    block_size: int = 4
    asked: list[tuple[Prompt, list[WorkerId]]] = field(default_factory=list)

    async def route(self, prompt: Prompt, excluded: Sequence[WorkerId], *, deadline: Deadline) -> Placement:
        self.asked.append((prompt, list(excluded)))
        for name in self.workers:
            if WorkerId(name, 1) not in excluded:
                return Placement(Worker(WorkerId(name, 1), name, self.block_size), self.held, None, HOP)
        raise TidemillError(Reason.NO_WORKERS, "nobody is there")


@dataclass
class FakeDecoder:
    """Answers ``ANSWER`` from where the job stands; ``failures`` maps a worker to the tokens it gives before it fails."""

    failures: dict[str, tuple[int, Reason]] = field(default_factory=dict)
    jobs: list[tuple[str, Job]] = field(default_factory=list)
    answer: list[int] = field(default_factory=lambda: list(ANSWER))
    chunk: int = 1
    running: int = 0

    async def generate(self, worker: Worker, job: Job, *, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
        self.jobs.append((worker.address, job))
        self.running += 1
        try:
            left, reason = self.failures.get(worker.address, (len(self.answer) + 1, Reason.INTERNAL))
            cached = job.prefix_blocks * job.block_size
            rest = self.answer[job.resumed_tokens :]
            for at in range(0, len(rest), self.chunk):
                if left <= 0:
                    raise TidemillError(reason, f"{worker.address} failed")
                part = rest[at : at + min(self.chunk, left)]
                left -= len(part)
                yield Chunk(pack(part), None, cached)
                cached = 0
            if left <= 0:
                raise TidemillError(reason, f"{worker.address} failed")
            yield Chunk(b"", Finish.END)
        finally:
            self.running -= 1


async def generate(
    router: FakeRouter, decoder: FakeDecoder, *, recover: float = 0.0, sampling: Sampling | None = None
) -> tuple[list[int], Finish | None, int]:
    """Ids, why it ended, and prompt tokens found cached."""
    sampling = sampling or Sampling(max_tokens=100, end_token_ids=pack([END]))
    run = Generator(router, decoder, recover).run(Order("turn", PROMPT, PROMPT.length, sampling), Deadline.after(10))
    ids, finish, cached = list[int](), None, 0
    async with aclosing(run.chunks()) as chunks:
        async for chunk in chunks:
            ids += unpack(chunk.packed)
            finish, cached = chunk.finish or finish, cached + chunk.cached
    assert decoder.running == 0
    return ids, finish, cached


async def test_only_tokens_after_the_held_blocks_travel() -> None:
    decoder = FakeDecoder()
    assert await generate(FakeRouter(["a"], held=2), decoder) == (ANSWER, Finish.END, 8)
    _, job = decoder.jobs[0]
    assert (job.prefix_blocks, job.prefix_digest, unpack(job.packed)) == (2, PROMPT.digest_at(2), [8, 9])


async def test_at_least_one_token_travels_when_all_is_held() -> None:
    decoder = FakeDecoder()
    prompt = Chain.empty(ROOT, 4).extend(pack(range(8)))
    order = Order("turn", prompt, 8, Sampling(max_tokens=9))
    run = Generator(FakeRouter(["a"], held=2), decoder, 0).run(order, Deadline.after(10))
    async for _ in run.chunks():
        pass
    assert (decoder.jobs[0][1].prefix_blocks, unpack(decoder.jobs[0][1].packed)) == (1, [4, 5, 6, 7])


async def test_unknown_prefix_is_followed_by_the_whole_prompt_on_the_same_worker_once() -> None:
    class Forgetful(FakeDecoder):
        async def generate(self, worker: Worker, job: Job, *, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
            self.jobs.append((worker.address, job))
            if job.prefix_blocks or len(self.jobs) > 2:
                raise TidemillError(Reason.PREFIX_UNKNOWN, "lost")
            yield Chunk(pack(ANSWER), Finish.END)

    decoder = Forgetful()
    assert (await generate(FakeRouter(["a", "b"], held=2), decoder))[0] == ANSWER
    assert [(name, job.prefix_blocks) for name, job in decoder.jobs] == [("a", 2), ("a", 0)]


async def test_a_worker_that_never_knows_the_prefix_is_an_error() -> None:
    decoder = FakeDecoder({"a": (0, Reason.PREFIX_UNKNOWN)})
    with pytest.raises(TidemillError) as error:
        await generate(FakeRouter(["a"], held=2), decoder)
    assert error.value.reason is Reason.PREFIX_UNKNOWN
    assert len(decoder.jobs) == 2


@pytest.mark.requirement("gateway:same-output-over-failures")
@given(
    st.lists(st.tuples(st.integers(0, 7), st.sampled_from([Reason.UNAVAILABLE, Reason.INTERNAL])), max_size=MAX_FAILURES),
    st.integers(1, 4),
)
async def test_whatever_workers_fail_where_the_answer_is_the_same(failures: list[tuple[int, Reason]], chunk: int) -> None:
    names = [f"w{number}" for number in range(len(failures))]
    decoder = FakeDecoder(dict(zip(names, failures, strict=True)), chunk=chunk)
    ids, finish, cached = await generate(FakeRouter([*names, "sound"], held=1), decoder)
    assert (ids, finish) == (ANSWER, Finish.END)
    assert cached == 4
    assert all(job.resumed_tokens <= len(ANSWER) for _, job in decoder.jobs)


async def test_a_continued_turn_sends_prompt_and_emitted_ids() -> None:
    decoder = FakeDecoder({"a": (2, Reason.UNAVAILABLE)})
    await generate(FakeRouter(["a", "b"]), decoder)
    name, job = decoder.jobs[1]
    assert (name, unpack(job.packed), job.resumed_tokens) == ("b", [*range(10), 100, 101], 2)


async def test_a_worker_lost_after_the_end_token_needs_no_other() -> None:
    decoder = FakeDecoder({"a": (len(ANSWER), Reason.UNAVAILABLE)})
    assert await generate(FakeRouter(["a"]), decoder) == (ANSWER, Finish.END, 0)
    assert len(decoder.jobs) == 1


async def test_a_worker_lost_at_the_limit_needs_no_other() -> None:
    decoder = FakeDecoder({"a": (3, Reason.UNAVAILABLE)})
    sampling = Sampling(max_tokens=3, end_token_ids=pack([END]))
    assert await generate(FakeRouter(["a"]), decoder, sampling=sampling) == (ANSWER[:3], Finish.LENGTH, 0)


async def test_failures_are_bounded() -> None:
    names = [f"w{number}" for number in range(20)]
    decoder = FakeDecoder(dict.fromkeys(names, (0, Reason.UNAVAILABLE)))
    with pytest.raises(TidemillError) as error:
        await generate(FakeRouter(names), decoder)
    assert error.value.reason is Reason.UNAVAILABLE
    assert len(decoder.jobs) == MAX_FAILURES + 1


async def test_a_request_at_fault_is_not_tried_elsewhere() -> None:
    decoder = FakeDecoder({"a": (0, Reason.MODEL_MISMATCH)})
    with pytest.raises(TidemillError) as error:
        await generate(FakeRouter(["a", "b"]), decoder)
    assert error.value.reason is Reason.MODEL_MISMATCH
    assert len(decoder.jobs) == 1


async def test_no_worker_at_all_is_said_after_the_wait() -> None:
    with pytest.raises(TidemillError) as error:
        await generate(FakeRouter([]), FakeDecoder())
    assert error.value.reason is Reason.NO_WORKERS


async def test_the_last_worker_lost_is_named() -> None:
    with pytest.raises(TidemillError) as error:
        await generate(FakeRouter(["a"]), FakeDecoder({"a": (2, Reason.UNAVAILABLE)}))
    assert error.value.reason is Reason.WORKER_LOST
    assert "a failed" in error.value.message


async def test_overload_everywhere_is_overload_at_once() -> None:
    with pytest.raises(TidemillError) as error:
        await generate(FakeRouter(["a"]), FakeDecoder({"a": (0, Reason.OVERLOADED)}), recover=60)
    assert error.value.reason is Reason.OVERLOADED


async def test_a_long_known_prefix_is_named_by_a_digest_near_its_end() -> None:
    prompt = Chain.empty(ROOT, 4).extend(pack(range(2000)))
    router = FakeRouter(["a"])
    run = Generator(router, FakeDecoder(), 0).run(Order("turn", prompt, 1600, Sampling(max_tokens=9)), Deadline.after(10))
    async for _ in run.chunks():
        pass
    asked, _ = router.asked[0]
    assert asked.parent_blocks == 400 - 64
    assert asked.parent_digest == prompt.digest_at(asked.parent_blocks)
    assert asked.parent_blocks + len(asked.block_digests) == prompt.block_count


async def test_closing_the_stream_ends_the_call_on_the_worker() -> None:
    decoder = FakeDecoder()
    run = Generator(FakeRouter(["a"]), decoder, 0).run(Order("turn", PROMPT, 0, Sampling(max_tokens=9)), Deadline.after(10))
    chunks = run.chunks()
    await anext(chunks)
    assert decoder.running == 1
    await chunks.aclose()
    assert decoder.running == 0


async def test_the_deadline_ends_the_wait_for_a_worker() -> None:
    run = Generator(FakeRouter([]), FakeDecoder(), 60).run(
        Order("turn", PROMPT, 0, Sampling(max_tokens=9)), Deadline.after(0.05)
    )
    with pytest.raises(TidemillError) as error:
        await anext(run.chunks())
    assert error.value.reason is Reason.DEADLINE_EXCEEDED
