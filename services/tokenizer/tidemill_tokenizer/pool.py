"""A bounded thread pool for long texts, so that they neither stall the event loop nor pile up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tidemill_common.errors import Reason, TidemillError

T = TypeVar("T")


class Pool:
    """Runs functions in threads; encoding releases the GIL, so threads run beside each other and the loop."""

    def __init__(self, threads: int, waiting: int) -> None:
        """At most ``threads`` jobs run and ``waiting`` more wait."""
        self._limit = threads + waiting
        self._places = threading.BoundedSemaphore(self._limit)
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="encode")

    async def run(self, job: Callable[[], T]) -> T:
        """Result of ``job``; a cancelled caller's waiting job never runs. Raises TidemillError(OVERLOADED) at the limit."""
        if not self._places.acquire(blocking=False):
            raise TidemillError(Reason.OVERLOADED, f"{self._limit} texts are being encoded or wait for it, the limit")
        future = self._executor.submit(job)
        future.add_done_callback(lambda _: self._places.release())
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Drop what waits; what runs ends by itself."""
        self._executor.shutdown(wait=False, cancel_futures=True)
