"""Token ids on the wire: packed little-endian uint32."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable

TOKEN_BYTES = 4


def pack(ids: Iterable[int]) -> bytes:
    """Pack ids as little-endian uint32. Raises OverflowError for an id outside [0, 2**32)."""
    packed = array("I", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack(data: bytes) -> list[int]:
    """Ids of a packed string. Raises ValueError when its length is no multiple of 4."""
    packed = array("I")
    packed.frombytes(data)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tolist()
