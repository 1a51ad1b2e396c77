from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.engine.worker.support import ROOT, FakeCache, apply, digest
from tidemill_engine.events import BlockEvent, BlocksCleared, BlocksRemoved, BlocksStored
from tidemill_engine.worker import feed as feed_module
from tidemill_engine.worker.feed import Feed

DIGESTS = st.sets(st.integers(0, 9), min_size=1).map(lambda numbers: tuple(map(digest, sorted(numbers))))
EVENTS = st.one_of(
    DIGESTS.map(lambda digests: BlocksStored(ROOT, digests)),
    DIGESTS.map(BlocksRemoved),
    st.just(BlocksCleared()),
)


def read(feed: Feed, held: set[bytes], expected: int) -> int:
    """Apply what the feed gives to ``held``; the number that the next event must have."""
    for number, events in feed.take():
        assert number == expected
        for event in events:
            apply(held, event)
        expected += len(events)
    return expected


@given(st.lists(st.one_of(st.just("take"), st.lists(EVENTS, min_size=1, max_size=4)), max_size=30))
def test_a_router_that_follows_the_feed_ends_with_what_is_held(steps: list[str | list[BlockEvent]]) -> None:
    cache = FakeCache()
    feed = Feed(cache)
    cache.subscribe(feed.push)
    held: set[bytes] = set()
    expected = 1
    for step in steps:
        if isinstance(step, str):
            expected = read(feed, held, expected)
        else:
            cache.change(*step)
    read(feed, held, expected)
    assert held == cache.held


def test_a_queue_beyond_its_bound_is_replaced_by_all_held_blocks() -> None:
    cache = FakeCache()
    feed = Feed(cache)
    cache.subscribe(feed.push)
    held: set[bytes] = set()
    expected = read(feed, held, 1)
    for number in range(feed_module.MAX_QUEUED_EVENTS + 1):
        cache.change(BlocksStored(ROOT, (digest(number),)), BlocksRemoved((digest(number),)))
    cache.change(BlocksStored(ROOT, (digest(3),)))
    assert read(feed, held, expected) - expected < 10
    assert held == {digest(3)}


def test_a_large_cache_is_told_in_messages_of_bounded_size() -> None:
    cache = FakeCache()
    cache.held = {digest(number) for number in range(40_000)}
    sizes = [len(events) for _, events in Feed(cache).take()]
    assert sum(sizes) == 40_001
    assert max(sizes) <= feed_module.MAX_DIGESTS_PER_MESSAGE + 1
