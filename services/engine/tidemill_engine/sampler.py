"""Choice of a token from logits.

Randomness is counter-based: the uniform number for the n-th output token is a hash of seed and n. So a request draws the same
numbers alone, in a batch, after a preemption and when another worker goes on with it, and no generator state travels.
"""

from __future__ import annotations

from hashlib import blake2b

import torch

from tidemill_engine.sampling import SamplingParams

_CANDIDATES = 1024  # a nucleus is nearly always within the best thousand; a full sort is the fallback


def uniform(seed: int, index: int) -> float:
    """The number in [0, 1) that decides output token ``index``."""
    digest = blake2b(index.to_bytes(8, "little"), key=seed.to_bytes(8, "little"), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def choose(logits: torch.Tensor, params: SamplingParams, index: int, allowed: torch.Tensor | None = None) -> int:
    """The next token.

    Args:
        logits: float [vocabulary].
        params: how to choose.
        index: how many output tokens precede this one.
        allowed: bool [vocabulary] of what a grammar permits; None permits all.
    """
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -torch.inf)
    if params.temperature <= 0:
        return int(logits.argmax())
    probabilities = torch.softmax(logits.float() / params.temperature, dim=-1)
    ids: torch.Tensor | None = None
    if 0 < params.top_p < 1:
        probabilities, ids = _nucleus(probabilities, params.top_p)
    place = _inverse_cdf(probabilities, uniform(params.seed, index))
    return place if ids is None else int(ids[place])


def _nucleus(probabilities: torch.Tensor, top_p: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The fewest most probable tokens whose mass reaches ``top_p``: their probabilities, descending, and ids."""
    best, ids = probabilities.topk(min(_CANDIDATES, len(probabilities)))
    if float(best.sum(dtype=torch.float64)) < top_p:
        best, ids = probabilities.sort(descending=True)
    before = best.cumsum(0, dtype=torch.float64) - best
    count = max(1, int((before < top_p).sum()))
    return best[:count], ids[:count]


def _inverse_cdf(probabilities: torch.Tensor, number: float) -> int:
    mass = probabilities.cumsum(0, dtype=torch.float64)
    target = torch.tensor(number, dtype=torch.float64) * mass[-1]
    place = int(torch.searchsorted(mass, target, right=True))
    # Rounding can put the target on the whole mass; then the most probable token stands in.
    return place if place < len(mass) else int(probabilities.argmax())
