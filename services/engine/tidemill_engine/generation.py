"""A turn, as its caller sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Self

from tidemill_common.errors import Reason, TidemillError
from tidemill_engine import kv_transfer
from tidemill_engine.outputs import Admission, Step
from tidemill_engine.request import EngineRequest
from tidemill_engine.run import EngineHandle, Run
from tidemill_engine.sequence import SequenceKind
from tidemill_engine.turn import Output, Turn


class Generation(Run[Step]):
    """Tokens of one turn: ``async for step in generation``; close it with ``aclose`` in any case.

    The first await raises TidemillError: INVALID_REQUEST, PREFIX_UNKNOWN, CONTEXT_LENGTH_EXCEEDED, INVALID_TOOLS (grammar),
    OVERLOADED. A later one raises INTERNAL or INVALID_TOOLS when this sequence failed, UNAVAILABLE when the engine stopped.
    """

    def __init__(self, engine: EngineHandle, request: EngineRequest, kind: SequenceKind = SequenceKind.GENERATE) -> None:
        super().__init__(engine, request, kind)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Step:
        step = await self._next()
        self._ended = step.finish is not None
        return step

    def _receive(self, output: Output) -> None:
        last = self._outputs[-1] if self._outputs else None
        if isinstance(output, Step) and isinstance(last, Step):
            self._outputs[-1] = Step(last.token_ids + output.token_ids, output.finish, last.cached_tokens)
        elif isinstance(output, Step | TidemillError):
            self._put(output)


class RemoteGeneration(Generation):
    """A turn whose prompt is computed elsewhere, at least in part.

    After ``admitted`` come ``first_token`` and ``import_chunk`` calls, in any order but each chunk after the one before it,
    then ``complete`` or ``fail``. What comes later is ignored, as it is after the sequence ended.
    """

    def __init__(self, engine: EngineHandle, request: EngineRequest) -> None:
        super().__init__(engine, request, SequenceKind.REMOTE)
        self._layout = engine.core.runner.cache.layout
        self._admission: Admission | None = None
        self._settled = asyncio.Event()
        self._importing = True
        self._first_given = False

    async def admitted(self) -> Admission:
        """Wait until the prompt has its blocks. Raises as a Generation's first await does, CANCELLED when closed before."""
        await self._start()
        await self._settled.wait()
        if self._admission is not None:
            return self._admission
        error = next((item for item in self._outputs if isinstance(item, TidemillError)), None)
        raise error or TidemillError(Reason.CANCELLED, "the sequence was closed before it was admitted")

    async def first_token(self, token_id: int, cached_tokens: int) -> None:
        """Give the token that the prefill worker sampled and how much it had cached; emitted at once.

        Raises TidemillError(KV_CORRUPT) for a token outside the vocabulary.
        """
        turn = self._turn
        if turn is None or not self._importing or self._first_given:
            return
        if not 0 <= token_id < self._engine.core.runner.vocabulary_size:
            raise TidemillError(Reason.KV_CORRUPT, f"first token {token_id} is not in the vocabulary")
        self._first_given = True
        # The engine's thread may be in a long step. Only stop strings need its word before the token goes out.
        at_once = not turn.sampling.stop
        if at_once:
            self._receive(Step((token_id,), None, cached_tokens))
        core = self._engine.core
        await self._engine.thread.call(partial(core.first_token, turn, token_id, cached_tokens, at_once))

    async def import_chunk(self, first_block: int, token_count: int, data: bytes, checksums: Sequence[int] = ()) -> None:
        """Write KV that arrived. One that arrives after the sequence ended is dropped.

        Raises TidemillError(KV_CORRUPT) when size, order or checksums do not fit; nothing is written then.
        """
        if checksums:
            kv_transfer.verify(data, token_count, checksums, self._layout)
        blocks = kv_transfer.split(data, token_count, self._layout)
        if (turn := self._turn) is not None:
            core = self._engine.core
            await self._engine.thread.call(partial(core.import_chunk, turn, first_block, token_count, blocks))

    async def complete(self) -> None:
        """All KV has arrived: generation goes on. What is missing all the same is computed here."""
        await self._finish_import()

    async def fail(self) -> None:
        """No more KV will come: the engine keeps what was imported and computes the rest itself."""
        await self._finish_import()

    async def aclose(self) -> None:
        """Abort in any state; the blocks are free when this returns. A second call does nothing."""
        self._importing = False
        self._settled.set()
        await super().aclose()

    async def _finish_import(self) -> None:
        turn: Turn | None = self._turn
        if self._importing and turn is not None:
            self._importing = False
            await self._engine.thread.call(partial(self._engine.core.finish_import, turn))

    def _receive(self, output: Output) -> None:
        if isinstance(output, Admission):
            self._admission = output
        super()._receive(output)
        self._settled.set()
