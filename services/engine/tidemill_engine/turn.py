"""One request in the engine: its sequence, what shapes its output, and when that ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill_common.errors import TidemillError
from tidemill_engine.grammar import GrammarMatcher
from tidemill_engine.outputs import Admission, Computed, FirstToken, Step
from tidemill_engine.request import EngineRequest
from tidemill_engine.sampling import FinishReason, SamplingParams
from tidemill_engine.sequence import Sequence
from tidemill_engine.stopping import StopMatcher

Output = Step | Admission | Computed | FirstToken | TidemillError


@dataclass(eq=False, slots=True)
class Turn:
    """A request under way.

    Attributes:
        request: as it came.
        sequence: what the scheduler sees of it.
        matcher: where it stands in its grammar; None when unconstrained or forced.
        stops: its stop strings; None when it has none.
        limit: tokens that the sequence may have, prompt included.
        receive: takes its outputs, on the event loop's thread.
        exported: leading blocks that the reader of a PREFILL holds or was told of.
        announced: whether a step was given out already.
    """

    request: EngineRequest
    sequence: Sequence
    matcher: GrammarMatcher | None
    stops: StopMatcher | None
    limit: int
    receive: Callable[[Output], None]
    exported: int = 0
    announced: bool = False

    @property
    def sampling(self) -> SamplingParams:
        """How its tokens are chosen."""
        return self.request.sampling

    @property
    def output_count(self) -> int:
        """Tokens generated so far, resumed ones included."""
        return len(self.sequence.tokens) - self.sequence.prompt_length + self.request.resumed_tokens

    @property
    def forced_token(self) -> int | None:
        """The scripted next token."""
        forced, index = self.sampling.forced_token_ids, self.output_count
        return forced[index] if index < len(forced) else None

    @property
    def nothing_to_generate(self) -> FinishReason | None:
        """Why a turn ends with its prompt: no token is wanted, or the resumed ones were all."""
        if self.sampling.forced_token_ids and self._end_of_script():
            return FinishReason.END_OF_TURN
        return FinishReason.LENGTH if self.output_count >= self.sampling.max_tokens else None

    def replay(self) -> None:
        """Take the resumed tokens as output. Raises TidemillError(INVALID_TOOLS) when the grammar does not allow them."""
        count = self.request.resumed_tokens
        resumed = list(self.request.token_ids[len(self.request.token_ids) - count :])
        if self.matcher:
            for token in resumed:
                self.matcher.accept(token)
        if self.stops:
            self.stops.prime(resumed)

    def accept(self, token: int) -> tuple[list[int], FinishReason | None]:
        """Append a token. Returns the tokens to emit now, and why generation ends, if it does."""
        self.sequence.tokens.append(token)
        if self.sampling.forced_token_ids:
            return [token], self._end_of_script() or self._end_of_room()
        if self.matcher:
            self.matcher.accept(token)
        if token in self.sampling.end_token_ids:
            return [*self._held(), token], FinishReason.END_OF_TURN
        emitted, stopped = self.stops.push(token) if self.stops else ([token], False)
        if stopped:
            return emitted, FinishReason.STOP
        finish = self._end_of_room()
        return emitted + (self._held() if finish else []), finish

    def _end_of_script(self) -> FinishReason | None:
        return FinishReason.END_OF_TURN if self.output_count >= len(self.sampling.forced_token_ids) else None

    def _end_of_room(self) -> FinishReason | None:
        full = self.output_count >= self.sampling.max_tokens or len(self.sequence.tokens) >= self.limit
        return FinishReason.LENGTH if full else None

    def _held(self) -> list[int]:
        return self.stops.flush() if self.stops else []
