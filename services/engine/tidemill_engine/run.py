"""What every caller's side of a sequence shares: start at the first await, outputs in order, close in any state."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from tidemill_common.errors import TidemillError
from tidemill_engine.core import EngineCore
from tidemill_engine.grammar import GrammarCompiler, GrammarMatcher
from tidemill_engine.request import EngineRequest
from tidemill_engine.sequence import SequenceKind
from tidemill_engine.thread import EngineThread
from tidemill_engine.turn import Output, Turn

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EngineHandle:
    """What a caller's side needs of the engine; ``core`` is touched on the engine's thread only."""

    thread: EngineThread
    core: EngineCore
    grammars: GrammarCompiler


class Run(ABC, Generic[T]):
    """A sequence's outputs of type ``T``. Outputs that are not yet read are merged by subclasses, so they stay few."""

    def __init__(self, engine: EngineHandle, request: EngineRequest, kind: SequenceKind, held_blocks: int = 0) -> None:
        self._engine = engine
        self._request = request
        self._kind = kind
        self._held_blocks = held_blocks
        self._turn: Turn | None = None  # the engine's thread sets it, before the first await returns
        self._outputs: deque[T | TidemillError] = deque()
        self._arrived = asyncio.Event()
        self._starting: asyncio.Task[None] | None = None
        self._ended = False

    async def aclose(self) -> None:
        """Abort in any state; the blocks are free when this returns. A second call does nothing."""
        self._ended = True
        self._outputs.clear()
        self._arrived.set()
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            # The command stands in the queue behind the one that enters the sequence, so none is left behind.
            with contextlib.suppress(TidemillError):
                await self._engine.thread.call(self._abort)

    @abstractmethod
    def _receive(self, output: Output) -> None:
        """Take an output, on the event loop's thread."""

    def _put(self, item: T | TidemillError) -> None:
        if not self._ended:
            self._outputs.append(item)
            self._arrived.set()

    async def _start(self) -> None:
        """Enter the sequence, once. Raises what the engine refuses it with, each time."""
        if self._starting is None:
            if self._ended:
                return
            self._starting = asyncio.create_task(self._submit())
            self._starting.add_done_callback(_retrieve)
        starting = self._starting
        await asyncio.wait([starting])
        if not starting.cancelled():
            starting.result()

    async def _submit(self) -> None:
        matcher = await self._matcher()
        await self._engine.thread.call(partial(self._enter, matcher))

    async def _matcher(self) -> GrammarMatcher | None:
        sampling = self._request.sampling
        if not sampling.grammar or sampling.forced_token_ids:
            return None
        return await asyncio.to_thread(self._engine.grammars.matcher, sampling.grammar)

    def _enter(self, matcher: GrammarMatcher | None) -> None:
        self._turn = self._engine.core.submit(self._request, self._kind, matcher, self._receive, self._held_blocks)

    def _abort(self) -> None:
        if self._turn is not None:
            self._engine.core.abort(self._turn)

    async def _next(self) -> T:
        """The oldest output. Raises StopAsyncIteration at the end, and the error that ended the sequence."""
        await self._start()
        while not self._outputs:
            if self._ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        item = self._outputs.popleft()
        if isinstance(item, TidemillError):
            self._ended = True
            raise item
        return item


def _retrieve(task: asyncio.Task[None]) -> None:
    """Take note of a refusal that a cancelled caller does not read."""
    if not task.cancelled():
        task.exception()
