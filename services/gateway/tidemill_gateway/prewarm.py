"""Prompts computed ahead of their turn (``generate: false``), a bounded number at once."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import Final

from tidemill_common.errors import TidemillError
from tidemill_gateway import metrics
from tidemill_gateway.backends import Deadline
from tidemill_gateway.generation import Generator, Order

log = logging.getLogger(__name__)

WAITING_PER_PLACE: Final = 8


class Prewarmer:
    """Computes prompts in the background. One that finds no room is left to its turn, and counted."""

    def __init__(self, generator: Generator, at_once: int, seconds: float) -> None:
        self._generator = generator
        self._places = asyncio.Semaphore(at_once)
        self._most = at_once * (1 + WAITING_PER_PLACE)
        self._seconds = seconds
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._running: set[str] = set()

    def start(self, response_id: str, order: Order) -> None:
        """Compute ``order`` when there is a place."""
        if len(self._tasks) >= self._most:
            metrics.PREFILLS_SKIPPED.inc()
            log.info("%s: no room to compute the prompt ahead", response_id)
            return
        task = asyncio.create_task(self._compute(response_id, order), name=f"prewarm {response_id}")
        self._tasks[response_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(response_id, None))

    async def settle(self, response_id: str, deadline: Deadline) -> None:
        """Before a turn goes on from a response: wait if its prompt is being computed; else leave it to the turn."""
        task = self._tasks.get(response_id)
        if task is None:
            return
        if response_id not in self._running:
            task.cancel()
            return
        await asyncio.wait({task}, timeout=deadline.left())

    async def close(self) -> None:
        """Stop them all."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _compute(self, response_id: str, order: Order) -> None:
        async with self._places:
            self._running.add(response_id)
            try:
                async with aclosing(self._generator.run(order, Deadline.after(self._seconds)).chunks()) as chunks:
                    async for _ in chunks:
                        pass
            except TidemillError as error:
                log.warning("%s: the prompt was not computed ahead: %s", response_id, error)
            finally:
                self._running.discard(response_id)
