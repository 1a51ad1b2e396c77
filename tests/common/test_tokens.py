from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_common.tokens import TOKEN_BYTES, pack, unpack

IDS = st.lists(st.integers(0, 2**32 - 1), max_size=50)


@pytest.mark.requirement("protos:token-ids")
@given(IDS)
def test_ids_are_packed_as_little_endian_uint32(ids: list[int]) -> None:
    assert pack(ids) == struct.pack(f"<{len(ids)}I", *ids)


@given(IDS, IDS)
def test_unpacking_is_the_inverse_and_concatenation_is_kept(left: list[int], right: list[int]) -> None:
    assert unpack(pack(left) + pack(right)) == left + right


@pytest.mark.parametrize("token", [-1, 2**32])
def test_an_id_that_does_not_fit_is_refused(token: int) -> None:
    with pytest.raises(OverflowError):
        pack([token])


@given(st.binary(max_size=20).filter(lambda data: len(data) % TOKEN_BYTES != 0))
def test_a_torn_string_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="multiple"):
        unpack(data)
