from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from tests.gateway.test_generation import FakeRouter
from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway.backends import Chunk, Deadline, Job, Sampling, Worker
from tidemill_gateway.chain import Chain
from tidemill_gateway.generation import Generator, Order
from tidemill_gateway.prewarm import WAITING_PER_PLACE, Prewarmer

PROMPT = Chain.empty(b"r" * 16, 4).extend(b"\1\0\0\0")


@dataclass
class SlowDecoder:
    """Computes a prompt when ``gate`` is set."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    running: int = 0
    most: int = 0
    done: int = 0
    error: TidemillError | None = None

    async def generate(self, worker: Worker, job: Job, *, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
        self.running += 1
        self.most = max(self.most, self.running)
        self.begun.set()
        try:
            await self.gate.wait()
            if self.error:
                raise self.error
            self.done += 1
            yield Chunk(b"")
        finally:
            self.running -= 1


def order(name: str) -> Order:
    return Order(name, PROMPT, 1, Sampling(max_tokens=0))


def make(decoder: SlowDecoder, at_once: int = 1) -> Prewarmer:
    return Prewarmer(Generator(FakeRouter(["a"]), decoder, 0), at_once, seconds=10)


async def test_a_turn_waits_for_the_prompt_that_is_being_computed() -> None:
    decoder = SlowDecoder()
    prewarmer = make(decoder)
    prewarmer.start("a", order("a"))
    await decoder.begun.wait()
    settled = asyncio.ensure_future(prewarmer.settle("a", Deadline.after(10)))
    await asyncio.sleep(0)
    assert not settled.done()
    decoder.gate.set()
    await settled
    assert decoder.done == 1


async def test_a_turn_takes_over_a_prompt_that_still_waits() -> None:
    decoder = SlowDecoder()
    prewarmer = make(decoder)
    prewarmer.start("a", order("a"))
    await decoder.begun.wait()
    prewarmer.start("b", order("b"))
    await prewarmer.settle("b", Deadline.after(10))
    decoder.gate.set()
    await prewarmer.settle("a", Deadline.after(10))
    assert decoder.done == 1


async def test_only_so_many_run_and_wait() -> None:
    decoder = SlowDecoder()
    prewarmer = make(decoder, at_once=2)
    for number in range(100):
        prewarmer.start(str(number), order(str(number)))
    await decoder.begun.wait()
    assert len(prewarmer._tasks) == 2 * (1 + WAITING_PER_PLACE)
    await prewarmer.close()
    assert (decoder.most, decoder.running) == (2, 0)


async def test_a_failure_is_left_to_the_turn() -> None:
    decoder = SlowDecoder(error=TidemillError(Reason.MODEL_MISMATCH, "other weights"))
    decoder.gate.set()
    prewarmer = make(decoder)
    prewarmer.start("a", order("a"))
    await decoder.begun.wait()
    await prewarmer.settle("a", Deadline.after(10))
    await prewarmer.settle("never started", Deadline.after(10))
    assert decoder.done == 0
