from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_common import digests
from tidemill_common.tokens import pack
from tidemill_gateway.chain import Chain

ROOT = b"r" * 16
parts_of_ids = st.lists(st.lists(st.integers(0, 60_000), max_size=40), max_size=8)
block_sizes = st.sampled_from([1, 4, 16])


def build(parts: list[list[int]], block_size: int) -> Chain:
    chain = Chain.empty(ROOT, block_size)
    for part in parts:
        chain = chain.extend(pack(part))
    return chain


@pytest.mark.requirement("gateway:token-chain")
@given(parts_of_ids, block_sizes)
def test_any_split_has_the_digests_and_the_tail_of_the_whole(parts: list[list[int]], block_size: int) -> None:
    chain = build(parts, block_size)
    packed = pack([token for part in parts for token in part])
    whole = digests.chain(ROOT, packed, block_size)
    assert chain.length == len(packed) // 4
    assert chain.block_count == len(whole)
    assert chain.digests_after(0) == whole
    assert chain.last_digest == (whole[-1] if whole else ROOT)
    assert chain.tail == packed[len(whole) * block_size * 4 :]


@given(parts_of_ids, block_sizes, st.integers(0, 400))
def test_what_comes_after_a_point_is_the_rest_of_the_whole(parts: list[list[int]], block_size: int, point: int) -> None:
    chain = build(parts, block_size)
    packed = pack([token for part in parts for token in part])
    assert chain.packed_after(point) == packed[point * 4 :]
    assert chain.digests_after(point) == digests.chain(ROOT, packed, block_size)[point:]


def test_a_digest_beyond_the_end_is_refused() -> None:
    chain = build([[1, 2, 3, 4]], 4)
    assert chain.digest_at(0) == ROOT
    with pytest.raises(ValueError, match="2 blocks asked of 1"):
        chain.digest_at(2)


def test_half_an_id_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 4"):
        Chain.empty(ROOT, 4).extend(b"\0\0\0")


@given(parts_of_ids)
def test_a_segment_takes_bytes_for_its_own_tokens_only(parts: list[list[int]]) -> None:
    chain = build(parts, 16)
    segments = list(chain.segments())
    assert (
        sum(segment.held_bytes for segment in segments)
        <= sum(len(part) * 4 + 16 * (len(part) // 16 + 1) + 60 for part in parts) + 60
    )
