"""How a sequence's next token is chosen, and why its generation ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class FinishReason(IntEnum):
    """Why generation ended; the values are those of ``tidemill.common.v1.FinishReason``."""

    END_OF_TURN = 1
    STOP = 2
    LENGTH = 3


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are sampled.

    Attributes:
        temperature: 0 is greedy; else logits are divided by it.
        top_p: nucleus mass in (0, 1]; 0 reads as 1.
        seed: of the request's own generator: same seed, same output, alone or in a batch.
        max_tokens: upper bound of generated tokens; 0 computes and caches the prompt only.
        stop: generation ends before the first of these strings, compared on bytes.
        end_token_ids: ids that end the turn; the ending id itself is emitted.
        grammar: llguidance grammar in its Lark syntax; empty is unconstrained.
        forced_token_ids: replace the sampled ones while the model still computes every pass; used up, they end the turn.
            They bypass grammar, stop strings and end tokens.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    end_token_ids: tuple[int, ...] = ()
    grammar: str = ""
    forced_token_ids: tuple[int, ...] = ()
