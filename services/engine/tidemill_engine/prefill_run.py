"""A prompt computed for another worker, as its caller sees it."""

from __future__ import annotations

import asyncio
from typing import Self

from tidemill_common.errors import TidemillError
from tidemill_engine.outputs import Computed, FirstToken, KvBlocks
from tidemill_engine.request import EngineRequest
from tidemill_engine.run import EngineHandle, Run
from tidemill_engine.sequence import SequenceKind
from tidemill_engine.turn import Output

MESSAGE_BYTES = 2 << 20  # gRPC streams fastest in messages of one to two MiB; one block is the least


class PrefillRun(Run[Computed | FirstToken]):
    """A prompt's KV as it is computed, and the first token as soon as it is sampled; close it with ``aclose`` in any case.

    Blocks are copied out when they are read: a slow reader holds blocks, not copies. Errors are those of a Generation.
    """

    def __init__(self, engine: EngineHandle, request: EngineRequest, held_blocks: int) -> None:
        super().__init__(engine, request, SequenceKind.PREFILL, held_blocks)
        self._cache = engine.core.runner.cache
        self._per_message = max(1, MESSAGE_BYTES // self._cache.layout.block_bytes)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> KvBlocks | FirstToken:
        output = await self._next()
        while isinstance(output, Computed):
            if output.blocks:
                return await self._export(output)
            await self._finish()
            output = await self._next()
        return output

    def _receive(self, output: Output) -> None:
        if isinstance(output, FirstToken) and not self._ended:
            # It overtakes blocks that are still to be read.
            self._outputs.appendleft(output)
            self._arrived.set()
        elif isinstance(output, Computed):
            self._merge(output)
        elif isinstance(output, TidemillError):
            self._put(output)

    def _merge(self, new: Computed) -> None:
        last = self._outputs[-1] if self._outputs else None
        if isinstance(last, Computed):
            tokens = last.token_count + new.token_count
            self._outputs[-1] = Computed(last.first_block, last.blocks + new.blocks, tokens, new.last)
        else:
            self._put(new)

    async def _export(self, output: Computed) -> KvBlocks:
        blocks, rest = output.blocks[: self._per_message], output.blocks[self._per_message :]
        whole = len(blocks) * self._cache.layout.block_size
        tokens = whole if rest else output.token_count
        if rest or output.last:
            self._outputs.appendleft(Computed(output.first_block + len(blocks), rest, output.token_count - tokens, output.last))
            self._arrived.set()
        data, checksums = await asyncio.to_thread(self._cache.export_blocks, blocks, tokens)
        return KvBlocks(output.first_block, tokens, data, checksums)

    async def _finish(self) -> None:
        """Everything was read: give the blocks back."""
        await self.aclose()
