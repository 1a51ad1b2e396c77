"""What is asked of the engine: a prompt, as a held prefix and the tokens after it."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill_engine.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One prompt and how to go on from it.

    Attributes:
        request_id: for logs only.
        root_digest: root of the digest chain, 16 bytes.
        prefix_digest: digest of the last full block that the caller believes to be held; the root when none.
        prefix_blocks: number of full blocks up to and with ``prefix_digest``; 0 when none.
        token_ids: the tokens after the prefix; at least one.
        sampling: how tokens are chosen.
        resumed_tokens: how many at the end of ``token_ids`` were generated already: they count as output for max_tokens, seed,
            grammar and forced tokens.
    """

    request_id: str
    root_digest: bytes
    prefix_digest: bytes
    prefix_blocks: int
    token_ids: tuple[int, ...]
    sampling: SamplingParams
    resumed_tokens: int = 0
