from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidemill_safety.features import BUCKETS, features


def test_an_empty_text_has_no_features() -> None:
    indices, values = features("")
    assert indices.shape == values.shape == (0,)


@given(st.text(min_size=1, max_size=200))
def test_features_are_distinct_buckets_with_a_vector_of_length_one(text: str) -> None:
    indices, values = features(text)
    assert np.all(np.diff(indices.astype(np.int64)) > 0)
    assert not indices.size or int(indices[-1]) < BUCKETS
    assert not indices.size or abs(float(np.linalg.norm(values)) - 1) < 1e-5


def test_buckets_are_the_same_on_every_machine() -> None:
    assert features("ab cd")[0].tolist() == [160471, 403970, 505529, 634011]


def test_word_order_and_repetition_matter() -> None:
    assert features("kill the process")[0].tolist() != features("process the kill")[0].tolist()
    assert len(features("again again again")[0]) < len(features("once twice thrice")[0])
