from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_router.policy import Candidate, Weights, Why, choose, load_blocks
from tidemill_router.workers import Load

WEIGHTS = Weights()
CANDIDATES = st.lists(
    st.builds(Candidate, st.text(min_size=1), st.integers(0, 64), st.floats(0, 1000), st.booleans()),
    min_size=1,
    max_size=6,
    unique_by=lambda each: each.worker_id,
)


def test_the_holder_of_the_prefix_wins_over_an_idle_worker() -> None:
    chosen, why = choose([Candidate("holder", 60, 8.0), Candidate("idle", 0, 0.0)], 64, "", WEIGHTS)
    assert (chosen.worker_id, why) == ("holder", Why.CACHE)


def test_load_above_what_the_cache_saves_overrides_it() -> None:
    chosen, why = choose([Candidate("holder", 10, 40.0), Candidate("idle", 0, 0.0)], 64, "", WEIGHTS)
    assert (chosen.worker_id, why) == ("idle", Why.LOAD)


def test_a_worker_with_a_queue_is_passed_over_whatever_it_holds() -> None:
    chosen, why = choose([Candidate("holder", 5000, 64.0, busy=True), Candidate("idle", 0, 0.0)], 5000, "", WEIGHTS)
    assert (chosen.worker_id, why) == ("idle", Why.LOAD)


def test_a_tie_goes_to_the_sessions_own_worker_and_stays_there_when_another_leaves() -> None:
    workers = [Candidate(f"w{n}", 0, 0.0) for n in range(4)]
    chosen, why = choose(workers, 4, "session", WEIGHTS)
    assert why is Why.SESSION
    others = [each for each in workers if each is not chosen]
    assert choose([chosen, *others[:2]], 4, "session", WEIGHTS)[0] == chosen
    assert len({choose(workers, 4, f"session {n}", WEIGHTS)[0].worker_id for n in range(64)}) == 4


def test_a_tie_without_a_session_goes_to_the_least_loaded_then_by_id() -> None:
    assert choose([Candidate("b", 0, 0.0), Candidate("a", 0, 0.25)], 4, "", WEIGHTS)[0].worker_id == "b"
    assert choose([Candidate("b", 0, 0.0), Candidate("a", 0, 0.0)], 4, "", WEIGHTS)[0].worker_id == "a"


def test_a_single_candidate_is_chosen_as_the_only_one() -> None:
    assert choose([Candidate("a", 0, 999.0, busy=True)], 4, "s", WEIGHTS)[1] is Why.ONLY


def test_no_candidate_is_an_error() -> None:
    with pytest.raises(ValueError, match="no candidates"):
        choose([], 4, "", WEIGHTS)


def test_load_counts_pending_tokens_running_and_waiting_sequences() -> None:
    assert load_blocks(Load(running=2, waiting=1, pending_prefill_tokens=160), 16, WEIGHTS) == 10 + 2 * 4 + 16


@given(CANDIDATES, st.integers(0, 64), st.text(max_size=3))
def test_the_choice_costs_no_more_than_a_tie_above_the_cheapest_worker_that_is_not_busy(
    candidates: list[Candidate], blocks: int, session: str
) -> None:
    chosen, _ = choose(candidates, blocks, session, WEIGHTS)
    able = [each for each in candidates if not each.busy] or candidates
    assert chosen in able
    assert chosen.cost(blocks, WEIGHTS) <= min(each.cost(blocks, WEIGHTS) for each in able) + WEIGHTS.tie_blocks
    assert choose(list(reversed(candidates)), blocks, session, WEIGHTS)[0] == chosen
