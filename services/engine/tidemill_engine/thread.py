"""The engine's thread: commands between steps, steps while there is work, outputs back to the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from tidemill_common.errors import Reason, TidemillError
from tidemill_engine.core import EngineCore
from tidemill_engine.events import BlockEvent
from tidemill_engine.stats import EngineStats

log = logging.getLogger(__name__)

STOP_SECONDS = 30.0
T = TypeVar("T")


class EngineThread:
    """Owns the core from ``start`` to ``stop``.

    Attributes:
        stats: snapshot after the latest step or command.
    """

    def __init__(self, core: EngineCore, on_events: Callable[[Sequence[BlockEvent]], None]) -> None:
        self.stats: EngineStats = core.stats
        self._core = core
        self._on_events = on_events
        # Bounded by its writers: each caller waits for its command before it sends the next.
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._open = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether it takes commands."""
        return self._open

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run; outputs and events are delivered on ``loop``."""
        self._loop = loop
        self._open = True
        self._thread.start()

    def stop(self) -> None:
        """End the running step, fail what is under way with UNAVAILABLE, and join. Raises TimeoutError after 30 s."""
        if self.post(self._close):
            self._thread.join(STOP_SECONDS)
            if self._thread.is_alive():
                raise TimeoutError(f"the engine's step did not end within {STOP_SECONDS} s")

    def post(self, command: Callable[[], None]) -> bool:
        """Run ``command`` on the thread, before the next step. Returns False when the thread has ended."""
        with self._lock:
            if self._open:
                self._commands.put(command)
            return self._open

    async def call(self, command: Callable[[], T]) -> T:
        """Run ``command`` on the thread and wait for its result. Raises TidemillError(UNAVAILABLE) when stopped."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if not self.post(partial(self._answer, future, command)):
            raise _stopped()
        return await future

    def _answer(self, future: asyncio.Future[T], command: Callable[[], T]) -> None:
        try:
            result = command()
        except Exception as error:  # noqa: BLE001 - the caller gets whatever its command raised
            self._core.outbox.append(partial(_reject, future, error))
        else:
            self._core.outbox.append(partial(_resolve, future, result))

    def _run(self) -> None:
        busy = False
        try:
            while True:
                self._run_commands(wait=not busy)
                if not self.alive:
                    return
                busy = self._step()
                self._deliver()
        except Exception:
            log.exception("the engine's thread ended")
        finally:
            self._close()
            self._run_commands(wait=False)
            self._core.fail_all(_stopped())
            self._deliver()

    def _run_commands(self, wait: bool) -> None:
        with contextlib.suppress(queue.Empty):
            if wait:
                self._commands.get()()
            while True:
                self._commands.get_nowait()()
        self.stats = self._core.stats

    def _step(self) -> bool:
        try:
            return self._core.step()
        except Exception as error:
            log.exception("a step failed")
            self._core.fail_all(TidemillError(Reason.INTERNAL, f"a step failed: {error!r}"))
            return False

    def _close(self) -> None:
        with self._lock:
            self._open = False

    def _deliver(self) -> None:
        self.stats = self._core.stats
        calls, self._core.outbox = self._core.outbox, []
        # Events go first: an index knows of a turn's blocks before anyone sees the turn end.
        if events := self._core.scheduler.pool.drain_events():
            calls.insert(0, partial(self._on_events, events))
        if calls and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_run_all, calls)


def _run_all(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        try:
            call()
        except Exception:
            log.exception("a reader of the engine's outputs failed")


def _resolve(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _reject(future: asyncio.Future[T], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _stopped() -> TidemillError:
    return TidemillError(Reason.UNAVAILABLE, "the engine has stopped")
