from __future__ import annotations

from tidemill_router.predictions import Predictions

BLOCKS = [bytes([n]) * 16 for n in range(4)]
UPWARDS = [(4 - n, digest) for n, digest in enumerate(reversed(BLOCKS))]


def test_an_expected_block_counts_until_it_expires() -> None:
    expected = Predictions(seconds=2, max_blocks=10)
    expected.add("a", BLOCKS[:3], now=0)
    assert expected.deepest(UPWARDS, ["a", "b"], now=1.9) == {"a": 3, "b": 0}
    assert expected.deepest(UPWARDS, ["a", "b"], now=2) == {"a": 0, "b": 0}


def test_a_dropped_worker_is_expected_to_hold_nothing() -> None:
    expected = Predictions(seconds=2, max_blocks=10)
    expected.add("a", BLOCKS, now=0)
    expected.drop("a")
    assert expected.deepest(UPWARDS, ["a"], now=0) == {"a": 0}


def test_at_most_the_newest_blocks_are_kept() -> None:
    expected = Predictions(seconds=2, max_blocks=2)
    expected.add("a", BLOCKS, now=0)
    assert expected.deepest(UPWARDS[2:], ["a"], now=0) == {"a": 0}
    assert expected.deepest(UPWARDS, ["a"], now=0) == {"a": 4}
