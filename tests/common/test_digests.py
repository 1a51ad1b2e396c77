from __future__ import annotations

from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_common.digests import DIGEST_BYTES, block_digest, chain, root_digest, split
from tidemill_common.tokens import pack

SECRET = b"0123456789abcdef"
ROOT = root_digest(SECRET, "tenant", "model")
IDS = st.lists(st.integers(0, 50_000), max_size=120)


@pytest.mark.requirement("digests:chain")
def test_a_block_is_named_by_its_parent_and_its_ids() -> None:
    ids = pack(range(16))
    assert block_digest(ROOT, ids) == blake2b(ROOT + ids, digest_size=16).digest()


@pytest.mark.requirement("digests:chain")
@given(IDS, st.integers(1, 20))
def test_only_full_blocks_have_digests_and_any_cut_at_a_block_chains_on(ids: list[int], block_size: int) -> None:
    whole = chain(ROOT, pack(ids), block_size)
    assert len(whole) == len(ids) // block_size
    for held in range(len(whole) + 1):
        parent = whole[held - 1] if held else ROOT
        assert whole[:held] + chain(parent, pack(ids[held * block_size :]), block_size) == whole


@given(st.lists(st.integers(0, 9), min_size=48, max_size=48), st.integers(0, 47))
def test_a_changed_token_changes_its_block_and_all_after_it(ids: list[int], position: int) -> None:
    changed = [*ids[:position], ids[position] + 100, *ids[position + 1 :]]
    pairs = list(zip(chain(ROOT, pack(ids)), chain(ROOT, pack(changed)), strict=True))
    assert [left == right for left, right in pairs] == [block < position // 16 for block in range(3)]


@pytest.mark.requirement("digests:tenant-isolation")
def test_secret_tenant_and_model_each_give_another_root() -> None:
    roots = {
        root_digest(SECRET, "a", "m"),
        root_digest(SECRET[::-1], "a", "m"),
        root_digest(SECRET, "b", "m"),
        root_digest(SECRET, "a", "n"),
        root_digest(SECRET, "a:1", "m"),
        root_digest(SECRET, "a", "1:m"),
    }
    assert len(roots) == 6


@given(st.text(max_size=8), st.text(max_size=8), st.text(max_size=8), st.text(max_size=8))
def test_no_two_pairs_of_tenant_and_model_run_into_each_other(t1: str, m1: str, t2: str, m2: str) -> None:
    assert (root_digest(SECRET, t1, m1) == root_digest(SECRET, t2, m2)) == ((t1, m1) == (t2, m2))


@pytest.mark.parametrize("length", [0, 15, 65])
def test_a_secret_of_unsafe_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="16 to 64"):
        root_digest(b"x" * length, "t", "m")


@given(st.lists(st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES), max_size=6))
def test_packed_digests_split_into_themselves(digests: list[bytes]) -> None:
    assert split(b"".join(digests)) == digests


def test_torn_digests_are_refused() -> None:
    with pytest.raises(ValueError, match="15 bytes"):
        split(b"x" * 15)
