"""The KV of one prompt, pulled from a prefill worker into the engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidemill_common.errors import Reason, TidemillError
from tidemill_engine.generation import RemoteGeneration
from tidemill_engine.outputs import Admission, FirstToken, KvBlocks

log = logging.getLogger(__name__)

Hop = TypeVar("Hop")


@dataclass(frozen=True, slots=True)
class Done(Generic[Hop]):
    """The prefill worker sent all; ``hop`` says who it was."""

    hop: Hop


class Pull(Generic[Hop]):
    """One transfer, beside the generation that waits for it. Its failure costs time, not the turn: the engine goes on alone.

    Attributes:
        hop: who prefilled; None until the transfer ended well.
        failure: why it ended otherwise, or None.
        imported_tokens: tokens whose KV arrived.
    """

    def __init__(self, generation: RemoteGeneration, block_size: int) -> None:
        self.hop: Hop | None = None
        self.failure: TidemillError | None = None
        self.imported_tokens = 0
        self._generation = generation
        self._block_size = block_size
        self._to_come = 0
        self._first_token = False
        self._task: asyncio.Task[None] | None = None

    @property
    def transferred_tokens(self) -> int:
        """Prompt tokens whose KV came or, once the first token did, is about to come."""
        return self._to_come if self._first_token and self.failure is None else self.imported_tokens

    def start(self, ask: Callable[[Admission], AsyncGenerator[KvBlocks | FirstToken | Done[Hop]]]) -> None:
        """Pull what ``ask`` gives for the admitted prompt."""
        self._task = asyncio.create_task(self._run(ask))

    async def settle(self, seconds: float) -> None:
        """Wait for the end of the transfer, ``seconds`` at most."""
        if self._task:
            await asyncio.wait({self._task}, timeout=seconds)

    async def aclose(self) -> None:
        """End the transfer now. A second call does nothing."""
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self, ask: Callable[[Admission], AsyncGenerator[KvBlocks | FirstToken | Done[Hop]]]) -> None:
        # The reader of the generation meets the engine's own errors too, so they end the transfer and nothing else.
        with contextlib.suppress(TidemillError):
            admission = await self._generation.admitted()
            self._to_come = len(admission.prompt_ids) - admission.held_blocks * self._block_size
            try:
                await self._receive(ask(admission))
            except TidemillError as error:
                self.failure = error
                log.warning("the prompt is computed here: %s", error.sentence())
            except Exception as error:
                self.failure = TidemillError(Reason.INTERNAL, repr(error))
                log.exception("the prompt is computed here")
            await (self._generation.complete() if self.failure is None else self._generation.fail())

    async def _receive(self, parts: AsyncGenerator[KvBlocks | FirstToken | Done[Hop]]) -> None:
        async with contextlib.aclosing(parts):
            async for part in parts:
                await self._take(part)
        if self.hop is None:
            raise TidemillError(Reason.WORKER_LOST, "the prefill worker's stream ended early")

    async def _take(self, part: KvBlocks | FirstToken | Done[Hop]) -> None:
        match part:
            case KvBlocks(first_block, token_count, data, checksums):
                await self._generation.import_chunk(first_block, token_count, data, checksums)
                self.imported_tokens += token_count
            case FirstToken(token_id, cached_tokens):
                self._first_token = True
                await self._generation.first_token(token_id, cached_tokens)
            case Done(hop):
                self.hop = hop
