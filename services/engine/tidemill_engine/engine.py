"""The engine: a thread that computes, and its asyncio side."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer

from tidemill_common.errors import Reason, TidemillError
from tidemill_common.model_dir import ModelProfile
from tidemill_common.vocabulary import Vocabulary
from tidemill_engine.block_pool import BlockPool
from tidemill_engine.core import EngineCore
from tidemill_engine.events import BlockEvent, BlocksStored
from tidemill_engine.generation import Generation, RemoteGeneration
from tidemill_engine.grammar import Encode, GrammarCompiler
from tidemill_engine.held_chains import HeldChains
from tidemill_engine.prefill_run import PrefillRun
from tidemill_engine.request import EngineRequest
from tidemill_engine.run import EngineHandle
from tidemill_engine.runner import Runner, load_runner, read_config
from tidemill_engine.scheduler import Scheduler
from tidemill_engine.settings import EngineSettings
from tidemill_engine.stats import EngineStats
from tidemill_engine.thread import EngineThread

log = logging.getLogger(__name__)


class Engine:
    """One model, one block pool, one thread.

    Attributes:
        fingerprint: of model, dtype, KV layout and block size; engines exchange KV only when theirs are equal.
        model_fingerprint: of the model alone.
        block_size: tokens per block.
        context_length: tokens per sequence at most: the setting or the model's own, and no more than the pool holds.
    """

    def __init__(
        self, runner: Runner, profile: ModelProfile, vocabulary: Vocabulary, encode: Encode, settings: EngineSettings
    ) -> None:
        layout = runner.cache.layout
        pool = BlockPool(len(runner.cache.data), layout.block_size)
        scheduler = Scheduler(
            pool,
            token_budget=max(settings.prefill_chunk, settings.max_running),
            max_running=settings.max_running,
            max_waiting=settings.max_waiting,
        )
        self.model_fingerprint = profile.fingerprint
        self.fingerprint = layout.fingerprint(profile.fingerprint)
        self.block_size = layout.block_size
        self.context_length = _context_length(settings.context_length or profile.context_length, pool)
        self._held = HeldChains()
        self._subscribers: list[Callable[[Sequence[BlockEvent]], None]] = []
        core = EngineCore(runner, scheduler, vocabulary, self.context_length)
        self._thread = EngineThread(core, self._on_events)
        grammars = GrammarCompiler(vocabulary, encode, profile.end_token_ids, runner.vocabulary_size)
        self._handle = EngineHandle(self._thread, core, grammars)

    @classmethod
    def load(cls, model_dir: Path, settings: EngineSettings) -> Engine:
        """Load the model; blocks for seconds. Raises TidemillError(CONFIG)."""
        if settings.threads:
            torch.set_num_threads(settings.threads)
        profile = ModelProfile.load(model_dir)
        if not profile.end_token_ids:
            raise TidemillError(Reason.CONFIG, f"the profile in {str(model_dir)!r} names no end token")
        try:
            vocabulary = Vocabulary.load(model_dir)
            encode = _encoder(model_dir)
        except (OSError, ValueError, KeyError) as error:
            raise TidemillError(Reason.CONFIG, f"tokenizer of {str(model_dir)!r} can't be read: {error}") from error
        runner = load_runner(
            model_dir,
            read_config(model_dir),
            kv_bytes=settings.kv_bytes,
            block_size=settings.block_size,
            dtype=settings.dtype,
        )
        return cls(runner, profile, vocabulary, encode, settings)

    @property
    def alive(self) -> bool:
        """Whether the thread takes requests."""
        return self._thread.alive

    @property
    def dropped_chunks(self) -> int:
        """KV chunks that arrived too late and were dropped."""
        return self._handle.core.dropped_chunks

    @property
    def preemptions(self) -> int:
        """How often a sequence lost its blocks to another and was computed anew."""
        return self._handle.core.scheduler.preemptions

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread; outputs and events are delivered on ``loop``."""
        self._thread.start(loop)

    def stop(self) -> None:
        """Stop the thread; whatever runs fails with UNAVAILABLE. Blocks for the running step, 30 s at most."""
        self._thread.stop()

    def stats(self) -> EngineStats:
        """The latest snapshot."""
        return self._thread.stats

    def subscribe(self, callback: Callable[[Sequence[BlockEvent]], None]) -> Callable[[], None]:
        """Call ``callback`` on the loop's thread with each batch of events, in order, from now on. Returns what ends that.

        ``held_chains()`` called beside it, without an await between, gives what was held before.
        """
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def held_chains(self) -> list[BlocksStored]:
        """All cached blocks, parents first, as of the events delivered so far. Call it on the loop's thread."""
        return self._held.chains()

    def generate(self, request: EngineRequest) -> Generation:
        """Generate a turn; a ``max_tokens`` of 0 computes and caches the prompt only."""
        return Generation(self._handle, request)

    def generate_remote(self, request: EngineRequest) -> RemoteGeneration:
        """Generate a turn whose prompt KV comes from a prefill worker."""
        return RemoteGeneration(self._handle, request)

    def prefill(self, request: EngineRequest, held_blocks: int) -> PrefillRun:
        """Compute a prompt for another worker, which holds its first ``held_blocks`` blocks."""
        return PrefillRun(self._handle, request, held_blocks)

    def _on_events(self, events: Sequence[BlockEvent]) -> None:
        self._held.apply(events)
        for callback in list(self._subscribers):
            callback(events)


def _encoder(model_dir: Path) -> Encode:
    tokenizer = Tokenizer.from_buffer((model_dir / "tokenizer.json").read_bytes())

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return encode


def _context_length(wanted: int, pool: BlockPool) -> int:
    room = pool.total_blocks * pool.block_size
    if room < wanted:
        log.warning("the pool holds %d tokens, so sequences may have %d instead of %d; raise kv_bytes", room, room, wanted)
    return min(wanted, room)
