from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemill_engine.outputs import KvBlocks
from tidemill_prefill.chunks import cut

BLOCK_BYTES = 8


@given(count=st.integers(1, 20), missing=st.integers(0, 15), limit=st.integers(1, 100), first=st.integers(0, 5))
def test_pieces_join_to_the_whole_and_none_is_larger_than_allowed(count: int, missing: int, limit: int, first: int) -> None:
    data = bytes(n % 251 for n in range(count * BLOCK_BYTES))
    whole = KvBlocks(first, count * 16 - missing, data, tuple(range(count)))
    pieces = list(cut(whole, 16, limit))
    assert b"".join(piece.data for piece in pieces) == data
    assert tuple(sum_ for piece in pieces for sum_ in piece.checksums) == whole.checksums
    assert sum(piece.token_count for piece in pieces) == whole.token_count
    assert all(len(piece.data) <= max(limit, BLOCK_BYTES) for piece in pieces)
    place = first
    for piece in pieces:
        assert piece.first_block == place
        assert -(-piece.token_count // 16) == len(piece.checksums)
        place += len(piece.checksums)
