from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemill_common.vocabulary import Vocabulary
from tidemill_engine.stopping import StopMatcher

WORDS = (b"a", b"b", b"ab", b"ba", b"", b"aab", "é".encode())
VOCABULARY = Vocabulary(WORDS, {})


def read(stop: list[str], tokens: list[int]) -> tuple[list[int], bool]:
    matcher = StopMatcher(stop, VOCABULARY)
    emitted: list[int] = []
    for token in tokens:
        some, stopped = matcher.push(token)
        emitted += some
        if stopped:
            return emitted, True
    return emitted + matcher.flush(), False


def test_nothing_of_the_stop_string_is_emitted() -> None:
    assert read(["bb"], [0, 1, 1, 0]) == ([0], True)


def test_what_only_looked_like_a_stop_string_is_emitted_late() -> None:
    matcher = StopMatcher(["bb"], VOCABULARY)
    assert matcher.push(1) == ([], False)
    assert matcher.push(0) == ([1, 0], False)


def test_a_token_that_begins_before_the_stop_string_is_emitted() -> None:
    assert read(["bb"], [2, 1]) == ([2], True)


def test_a_stop_string_may_begin_in_resumed_tokens() -> None:
    matcher = StopMatcher(["bb"], VOCABULARY)
    matcher.prime([0, 1])
    assert matcher.push(1) == ([], True)


@given(
    st.lists(st.sampled_from(["b", "bb", "aba", "ab", "é"]), min_size=1, max_size=3),
    st.lists(st.integers(0, len(WORDS) - 1), max_size=12),
)
def test_generation_ends_at_the_first_stop_string(stop: list[str], tokens: list[int]) -> None:
    emitted, stopped = read(stop, tokens)
    assert emitted == tokens[: len(emitted)]
    text = VOCABULARY.decode(tokens)
    places = [text.find(word.encode()) for word in stop if word.encode() in text]
    assert stopped == bool(places)
    if not stopped:
        assert emitted == tokens
    elif emitted:
        assert len(VOCABULARY.decode(emitted[:-1])) <= min(places)
