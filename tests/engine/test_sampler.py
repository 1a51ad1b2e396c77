from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tidemill_engine.sampler import choose, uniform
from tidemill_engine.sampling import SamplingParams

LOGITS = torch.tensor([1.0, 3.0, 2.0, -1.0])


def test_temperature_zero_takes_the_best() -> None:
    assert choose(LOGITS, SamplingParams(), 0) == 1


def test_a_grammar_hides_tokens() -> None:
    allowed = torch.tensor([True, False, False, True])
    assert choose(LOGITS, SamplingParams(), 0, allowed) == 0
    draws = {choose(LOGITS, SamplingParams(temperature=5.0), index, allowed) for index in range(50)}
    assert draws == {0, 3}


def test_frequencies_follow_the_probabilities() -> None:
    params = SamplingParams(temperature=1.0, seed=7)
    counts = Counter(choose(LOGITS, params, index) for index in range(4000))
    for token, probability in enumerate(torch.softmax(LOGITS, 0).tolist()):
        assert counts[token] / 4000 == pytest.approx(probability, abs=0.03)


def test_the_nucleus_is_the_fewest_tokens_that_reach_the_mass() -> None:
    draws = {choose(LOGITS, SamplingParams(temperature=1.0, top_p=0.8), index) for index in range(300)}
    assert draws == {1, 2}
    assert {choose(LOGITS, SamplingParams(temperature=1.0, top_p=1e-6), index) for index in range(50)} == {1}


def test_a_wide_nucleus_goes_beyond_the_candidates() -> None:
    flat = torch.zeros(5000)
    draws = {choose(flat, SamplingParams(temperature=1.0, top_p=0.9), index) for index in range(200)}
    assert len(draws) > 150


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32))
def test_uniform_numbers_depend_on_seed_and_index_only(seed: int, index: int) -> None:
    assert 0 <= uniform(seed, index) < 1
    assert uniform(seed, index) == uniform(seed, index)
    assert uniform(seed, index) != uniform(seed, index + 1)
