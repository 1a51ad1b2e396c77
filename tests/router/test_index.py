from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemill_common.digests import block_digest
from tidemill_router.index import BlockIndex, Chain

ROOT = bytes(16)
WORKERS = ("a", "b", "c")


def chain(length: int, branch: int = 0, shared: int = 0) -> list[bytes]:
    """Digests of a chain; branches share the first ``shared`` blocks."""
    digests, parent = [], ROOT
    for n in range(length):
        parent = block_digest(parent, bytes([n, branch if n >= shared else 0]))
        digests.append(parent)
    return digests


CHAINS = [chain(6, branch, shared) for branch, shared in ((0, 0), (1, 3), (2, 0))]
STORE = st.tuples(st.just("store"), st.sampled_from(WORKERS), st.integers(0, 2), st.integers(0, 5), st.integers(0, 6))
REMOVE = st.tuples(st.just("remove"), st.sampled_from(WORKERS), st.integers(0, 2), st.integers(0, 5), st.integers(0, 6))
CLEAR = st.tuples(st.just("clear"), st.sampled_from(WORKERS), st.just(0), st.just(0), st.just(0))


@given(st.lists(st.one_of(STORE, REMOVE, CLEAR), max_size=40))
def test_holders_after_any_events_equal_a_naive_model(events: list[tuple[str, str, int, int, int]]) -> None:
    index = BlockIndex(1000)
    naive: dict[str, set[bytes]] = {worker: set() for worker in WORKERS}
    for kind, worker, branch, start, stop in events:
        digests = CHAINS[branch][start:stop]
        if kind == "store":
            index.store(worker, ([ROOT, *CHAINS[branch]])[start], digests)
            naive[worker] |= set(digests)
        elif kind == "remove":
            index.remove(worker, digests)
            naive[worker] -= set(digests)
        else:
            index.clear(worker)
            naive[worker].clear()
    for digest in {digest for digests in CHAINS for digest in digests}:
        assert index.holders(digest) == {worker for worker in WORKERS if digest in naive[worker]}
    assert len(index) == sum(map(len, naive.values()))


@given(held=st.integers(0, 6), named=st.integers(0, 6), length=st.integers(1, 6))
def test_the_deepest_held_block_is_found_by_new_digests_parent_or_links(held: int, named: int, length: int) -> None:
    named = min(named, length)
    digests = CHAINS[0][:length]
    index = BlockIndex(1000)
    index.store("full", ROOT, CHAINS[0])
    index.store("some", ROOT, CHAINS[0][:held])
    parent = ([ROOT, *digests])[named]
    deepest = index.deepest(Chain(parent, named, tuple(digests[named:])), ["full", "some", "none"])
    assert deepest == {"full": length, "some": min(held, length), "none": 0}


def test_a_block_that_nobody_holds_still_links_to_a_shallower_one() -> None:
    index = BlockIndex(1000)
    index.store("a", ROOT, CHAINS[0])
    index.remove("a", CHAINS[0][3:])
    assert index.deepest(Chain(CHAINS[0][5], 6, ()), ["a"]) == {"a": 3}


def test_branches_share_only_their_common_blocks() -> None:
    index = BlockIndex(1000)
    index.store("a", ROOT, CHAINS[0])
    index.store("b", ROOT, CHAINS[1])
    assert index.deepest(Chain(ROOT, 0, tuple(CHAINS[1])), WORKERS) == {"a": 3, "b": 6, "c": 0}


def test_a_full_index_forgets_the_longest_untouched_blocks() -> None:
    index = BlockIndex(6)
    index.store("a", ROOT, CHAINS[0])
    index.store("b", ROOT, CHAINS[2][:2])
    assert len(index) == 6
    assert index.holders(CHAINS[0][1]) == frozenset()
    index.remove("a", CHAINS[0])
    index.clear("b")
    assert len(index) == 0
