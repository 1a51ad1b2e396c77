"""The engine: a thread that computes, and its asyncio side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from tidemill_engine.events import BlockEvent, BlocksStored
from tidemill_engine.generation import Generation, PrefillRun, RemoteGeneration
from tidemill_engine.request import EngineRequest
from tidemill_engine.settings import EngineSettings
from tidemill_engine.stats import EngineStats


class Engine:
    """One model, one block pool, one thread.

    Attributes:
        fingerprint: of model, dtype, KV layout and block size; engines exchange KV only when theirs are equal.
        model_fingerprint: of the model alone.
        block_size: tokens per block.
        context_length: tokens per sequence at most.
    """

    fingerprint: str
    model_fingerprint: str
    block_size: int
    context_length: int

    @classmethod
    def load(cls, model_dir: Path, settings: EngineSettings) -> Engine:
        """Load the model; blocks for seconds. Raises TidemillError(CONFIG)."""
        raise NotImplementedError

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread; outputs and events are delivered on ``loop``."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the thread; whatever runs fails with UNAVAILABLE."""
        raise NotImplementedError

    def stats(self) -> EngineStats:
        """The latest snapshot."""
        raise NotImplementedError

    def subscribe(self, callback: Callable[[Sequence[BlockEvent]], None]) -> Callable[[], None]:
        """Call ``callback`` on the loop's thread with each batch of events, in order, from now on. Returns what ends that.

        ``held_chains()`` called beside it, without an await between, gives what was held before.
        """
        raise NotImplementedError

    def held_chains(self) -> list[BlocksStored]:
        """All cached blocks, parents first, as of the events delivered so far. Call it on the loop's thread."""
        raise NotImplementedError

    def generate(self, request: EngineRequest) -> Generation:
        """Generate a turn; a ``max_tokens`` of 0 computes and caches the prompt only."""
        raise NotImplementedError

    def generate_remote(self, request: EngineRequest) -> RemoteGeneration:
        """Generate a turn whose prompt KV comes from a prefill worker."""
        raise NotImplementedError

    def prefill(self, request: EngineRequest, held_blocks: int) -> PrefillRun:
        """Compute a prompt for another worker, which holds its first ``held_blocks`` blocks."""
        raise NotImplementedError
