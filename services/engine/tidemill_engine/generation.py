"""A caller's side of one sequence: an async iterator that can be closed in any state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Self

from tidemill_engine.outputs import Admission, FirstToken, KvBlocks, Step


class Generation:
    """Tokens of one turn: ``async for step in generation``.

    The first await raises TidemillError: PREFIX_UNKNOWN, CONTEXT_LENGTH_EXCEEDED, INVALID_TOOLS (grammar), OVERLOADED. A later
    one raises INTERNAL when the engine failed this sequence, UNAVAILABLE when it stopped.
    """

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Step:
        raise NotImplementedError

    async def aclose(self) -> None:
        """Abort in any state; the blocks are free when this returns. A second call does nothing."""
        raise NotImplementedError


class RemoteGeneration(Generation):
    """A turn whose prompt is computed elsewhere, at least in part."""

    async def admitted(self) -> Admission:
        """Wait until the prompt has its blocks. Raises as the first await of a Generation does."""
        raise NotImplementedError

    async def first_token(self, token_id: int, cached_tokens: int) -> None:
        """Give the token that the prefill worker sampled and how much it had cached; emitted at once."""
        raise NotImplementedError

    async def import_chunk(self, first_block: int, token_count: int, data: bytes, checksums: Sequence[int] = ()) -> None:
        """Write KV that arrived. Chunks come in order; one that arrives after the sequence ended is dropped.

        Raises TidemillError(KV_CORRUPT) when size, order or checksums do not fit; nothing is written then.
        """
        raise NotImplementedError

    async def complete(self) -> None:
        """All KV has arrived: generation goes on."""
        raise NotImplementedError

    async def fail(self) -> None:
        """No more KV will come: the engine keeps what was imported and computes the rest itself."""
        raise NotImplementedError


class PrefillRun:
    """A prompt's KV as it is computed, and the first token. Raises as a Generation does."""

    def __aiter__(self) -> AsyncIterator[KvBlocks | FirstToken]:
        return self

    async def __anext__(self) -> KvBlocks | FirstToken:
        raise NotImplementedError

    async def aclose(self) -> None:
        """Abort in any state; the blocks are free when this returns. A second call does nothing."""
        raise NotImplementedError
