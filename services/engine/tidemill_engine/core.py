"""The engine's core: what one step does, and what callers may change between steps. Runs on the engine's thread only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import torch

from tidemill_common.errors import Reason, TidemillError
from tidemill_common.tokens import unpack
from tidemill_common.vocabulary import Vocabulary
from tidemill_engine import sampler
from tidemill_engine.grammar import GrammarMatcher
from tidemill_engine.outputs import Admission, Computed, FirstToken, Step
from tidemill_engine.request import EngineRequest
from tidemill_engine.runner import ModelChunk, Runner
from tidemill_engine.sampling import FinishReason
from tidemill_engine.scheduler import Chunk, Scheduler
from tidemill_engine.sequence import Sequence as EngineSequence
from tidemill_engine.sequence import SequenceKind, SequenceState
from tidemill_engine.stats import EngineStats
from tidemill_engine.stopping import StopMatcher
from tidemill_engine.turn import Output, Turn

log = logging.getLogger(__name__)


class EngineCore:
    """Turns over a scheduler and a runner.

    Attributes:
        outbox: calls to make on the event loop's thread, in order; whoever steps the core empties it.
        dropped_chunks: KV chunks that arrived for a turn that had ended or did not import any more.
        limit: tokens per sequence.
    """

    def __init__(self, runner: Runner, scheduler: Scheduler, vocabulary: Vocabulary, limit: int) -> None:
        self.runner = runner
        self.scheduler = scheduler
        self.limit = limit
        self.outbox: list[Callable[[], None]] = []
        self.dropped_chunks = 0
        self._vocabulary = vocabulary
        self._turns: dict[EngineSequence, Turn] = {}

    @property
    def stats(self) -> EngineStats:
        """Load and occupancy now."""
        scheduler, pool = self.scheduler, self.scheduler.pool
        return EngineStats(
            running=scheduler.running,
            waiting=scheduler.waiting,
            pending_prefill_tokens=scheduler.pending_prefill_tokens,
            free_blocks=pool.free_blocks,
            total_blocks=pool.total_blocks,
            used_blocks=pool.used_blocks,
            sequences=len(self._turns),
        )

    def submit(
        self,
        request: EngineRequest,
        kind: SequenceKind,
        matcher: GrammarMatcher | None,
        receive: Callable[[Output], None],
        held_blocks: int = 0,
    ) -> Turn:
        """Queue a request.

        Raises TidemillError: INVALID_REQUEST, PREFIX_UNKNOWN, CONTEXT_LENGTH_EXCEEDED, INVALID_TOOLS, OVERLOADED.
        """
        sequence = EngineSequence(request.root_digest, self._prompt(request), kind)
        stops = StopMatcher(request.sampling.stop, self._vocabulary) if request.sampling.stop else None
        turn = Turn(request, sequence, matcher, stops, self.limit, receive, exported=held_blocks)
        self._check_length(turn)
        turn.replay()
        self.scheduler.add(sequence)
        self._turns[sequence] = turn
        return turn

    def abort(self, turn: Turn) -> None:
        """Drop a turn in any state; its blocks are free afterwards."""
        self.scheduler.end(turn.sequence)
        self._turns.pop(turn.sequence, None)

    def first_token(self, turn: Turn, token: int, cached_tokens: int, emitted: bool) -> None:
        """Take the first token of a remote prompt; ``emitted`` says that the caller's reader has it already."""
        if turn.sequence.state is not SequenceState.IMPORTING:
            return
        turn.announced = emitted
        turn.sequence.cached_tokens = cached_tokens
        self._guard(turn, partial(self._accept, turn, token, silent=emitted))

    def import_chunk(self, turn: Turn, first_block: int, token_count: int, blocks: Sequence[memoryview]) -> None:
        """Write KV that arrived, or drop it when the turn does not import any more.

        Raises TidemillError(KV_CORRUPT) when the chunk is not the next one, or ends inside a block before the prompt's end.
        """
        sequence, size = turn.sequence, self.scheduler.pool.block_size
        if sequence.state is not SequenceState.IMPORTING:
            self.dropped_chunks += 1
            return
        end = sequence.computed + token_count
        fits = first_block * size == sequence.computed and end <= sequence.prompt_length
        if not fits or (end % size and end != sequence.prompt_length):
            message = f"{token_count} tokens of KV from block {first_block} do not follow {sequence.computed} tokens"
            raise TidemillError(Reason.KV_CORRUPT, message)
        self.runner.cache.import_blocks(sequence.blocks[first_block : first_block + len(blocks)], blocks)
        self.scheduler.advance(sequence, token_count)

    def finish_import(self, turn: Turn) -> None:
        """No more KV comes: go on, computing here what is missing."""
        if turn.sequence.state is SequenceState.IMPORTING:
            self.scheduler.resume(turn.sequence)

    def step(self) -> bool:
        """One step of the model. Returns whether there was anything to do."""
        plan = self.scheduler.schedule()
        for sequence in plan.admitted:
            self._announce_admission(self._turns[sequence])
        for chunk, logits in self._compute(plan.chunks):
            turn = self._turns[chunk.sequence]
            self._guard(turn, partial(self._settle, turn, chunk, logits))
        return bool(plan.chunks)

    def fail(self, turn: Turn, error: TidemillError) -> None:
        """End a turn with an error."""
        self.abort(turn)
        self._emit(turn, error)

    def fail_all(self, error: TidemillError) -> None:
        """End every turn with an error."""
        for turn in list(self._turns.values()):
            self.fail(turn, error)

    def _prompt(self, request: EngineRequest) -> list[int]:
        prefix: bytes | None = b""
        if request.prefix_blocks:
            prefix = self.scheduler.pool.prefix(request.root_digest, request.prefix_digest, request.prefix_blocks)
        if prefix is None:
            message = f"prefix {request.prefix_digest.hex()} of {request.prefix_blocks} blocks is not held"
            raise TidemillError(Reason.PREFIX_UNKNOWN, message)
        given = (*request.token_ids, *request.sampling.forced_token_ids)
        if not request.token_ids or max(given) >= self.runner.vocabulary_size or min(given) < 0:
            message = f"token ids must be in [0, {self.runner.vocabulary_size}), at least one"
            raise TidemillError(Reason.INVALID_REQUEST, message, "token_ids")
        if not 0 <= request.resumed_tokens <= len(request.token_ids):
            message = f"{request.resumed_tokens} tokens can't be resumed of {len(request.token_ids)}"
            raise TidemillError(Reason.INVALID_REQUEST, message, "resumed_tokens")
        return [*unpack(prefix), *request.token_ids]

    def _check_length(self, turn: Turn) -> None:
        count = turn.sequence.prompt_length
        if count + (turn.nothing_to_generate is None) > self.limit:
            message = f"the prompt has {count} tokens; prompt and output may have {self.limit}"
            raise TidemillError(Reason.CONTEXT_LENGTH_EXCEEDED, message, "input")

    def _compute(self, chunks: Sequence[Chunk]) -> list[tuple[Chunk, torch.Tensor | None]]:
        """Run the model; when that fails, once more for each sequence alone, so that only the one at fault ends."""
        if not chunks:
            return []
        try:
            rows = iter(self.runner.forward([self._model_chunk(chunk) for chunk in chunks]))
        except Exception as error:
            log.exception("a step of %d sequences failed", len(chunks))
            if len(chunks) > 1:
                return [pair for chunk in chunks for pair in self._compute([chunk])]
            self.fail(self._turns[chunks[0].sequence], TidemillError(Reason.INTERNAL, f"the model failed: {error!r}"))
            return []
        return [(chunk, next(rows) if chunk.reaches_end else None) for chunk in chunks]

    def _model_chunk(self, chunk: Chunk) -> ModelChunk:
        tokens = chunk.sequence.tokens[chunk.start : chunk.start + chunk.count]
        return ModelChunk(tokens, chunk.start, chunk.sequence.blocks, chunk.reaches_end)

    def _settle(self, turn: Turn, chunk: Chunk, logits: torch.Tensor | None) -> None:
        """Book a computed chunk, and choose the next token where it reaches the end."""
        self.scheduler.advance(turn.sequence, chunk.count)
        prefill = turn.sequence.kind is SequenceKind.PREFILL
        if logits is not None and prefill:
            self._emit(turn, FirstToken(self._choose(turn, logits), turn.sequence.cached_tokens or 0))
            self.scheduler.drain(turn.sequence)
        elif logits is not None:
            finish = turn.nothing_to_generate
            self._emit_step(turn, [], finish) if finish else self._accept(turn, self._choose(turn, logits))
        if prefill:
            self._announce_blocks(turn, last=logits is not None)

    def _choose(self, turn: Turn, logits: torch.Tensor) -> int:
        if (forced := turn.forced_token) is not None:
            return forced
        allowed = turn.matcher.allowed() if turn.matcher else None
        return sampler.choose(logits, turn.sampling, turn.output_count, allowed)

    def _accept(self, turn: Turn, token: int, silent: bool = False) -> None:
        tokens, finish = turn.accept(token)
        self._emit_step(turn, [] if silent else tokens, finish)

    def _emit_step(self, turn: Turn, tokens: list[int], finish: FinishReason | None) -> None:
        if finish:
            self.abort(turn)
        if tokens or finish:
            cached = None if turn.announced else turn.sequence.cached_tokens
            turn.announced = True
            self._emit(turn, Step(tuple(tokens), finish, cached))

    def _announce_admission(self, turn: Turn) -> None:
        sequence = turn.sequence
        if sequence.state is SequenceState.IMPORTING:
            held = sequence.computed // self.scheduler.pool.block_size
            self._emit(turn, Admission(tuple(sequence.tokens), held, sequence.computed))

    def _announce_blocks(self, turn: Turn, last: bool) -> None:
        sequence, size = turn.sequence, self.scheduler.pool.block_size
        end = len(sequence.blocks) if last else sequence.computed // size
        start = min(turn.exported, end)
        turn.exported = max(turn.exported, end)
        if end > start or last:
            tokens = sequence.computed - start * size if last else (end - start) * size
            self._emit(turn, Computed(start, tuple(sequence.blocks[start:end]), tokens, last))

    def _emit(self, turn: Turn, output: Output) -> None:
        self.outbox.append(partial(turn.receive, output))

    def _guard(self, turn: Turn, action: Callable[[], None]) -> None:
        """Run ``action``; what it raises ends this turn alone."""
        try:
            action()
        except TidemillError as error:
            self.fail(turn, error)
        except Exception as error:
            log.exception("sequence %r failed", turn.request.request_id)
            self.fail(turn, TidemillError(Reason.INTERNAL, f"the sequence failed: {error!r}"))
