"""Messages that both workers read, to the engine's values."""

from __future__ import annotations

import math

from tidemill.common.v1 import common_pb2
from tidemill_common.digests import DIGEST_BYTES
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.tokens import unpack
from tidemill_engine.sampling import SamplingParams


def ids(packed: bytes, param: str) -> tuple[int, ...]:
    """Token ids of a packed string. Raises TidemillError(INVALID_REQUEST) that names ``param``."""
    try:
        return tuple(unpack(packed))
    except ValueError as error:
        raise TidemillError(Reason.INVALID_REQUEST, f"{len(packed)} bytes are no packed token ids", param) from error


def digest(value: bytes, param: str) -> bytes:
    """A digest. Raises TidemillError(INVALID_REQUEST) that names ``param``."""
    if len(value) != DIGEST_BYTES:
        raise TidemillError(Reason.INVALID_REQUEST, f"digest of {len(value)} bytes, not {DIGEST_BYTES}", param)
    return value


def sampling(message: common_pb2.Sampling) -> SamplingParams:
    """How tokens are sampled. Raises TidemillError(INVALID_REQUEST) that names the field out of range."""
    if not (math.isfinite(message.temperature) and message.temperature >= 0):
        raise TidemillError(Reason.INVALID_REQUEST, f"temperature {message.temperature!r} is not 0 or more", "temperature")
    if not 0 <= message.top_p <= 1:
        raise TidemillError(Reason.INVALID_REQUEST, f"top_p {message.top_p!r} is not within 0 and 1", "top_p")
    return SamplingParams(
        temperature=message.temperature,
        top_p=message.top_p or 1.0,
        seed=message.seed,
        max_tokens=message.max_tokens,
        stop=tuple(message.stop),
        end_token_ids=ids(message.end_token_ids, "end_token_ids"),
        grammar=message.grammar,
        forced_token_ids=ids(message.forced_token_ids, "forced_token_ids"),
    )
