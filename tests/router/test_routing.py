from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.router.support import BLOCK, MODEL, ROOT, about, digests, router
from tidemill_common.errors import Reason, TidemillError
from tidemill_router.index import Chain
from tidemill_router.policy import Why
from tidemill_router.routing import Prompt
from tidemill_router.workers import Load, Role


def prompt(blocks: int, branch: int = 0, **more: object) -> Prompt:
    return replace(Prompt(Chain(ROOT, 0, digests(blocks, branch)), blocks * BLOCK + 3, MODEL), **more)  # type: ignore[arg-type]


@pytest.mark.requirement("router:cache")
def test_a_turn_goes_where_its_blocks_are() -> None:
    core = router()
    for name in ("decode-0", "decode-1"):
        core.register(about(name), 0)
    core.index.store("decode-1", ROOT, digests(40))
    route = core.route(prompt(41), 0)
    assert (route.decode.worker_id, route.decode_blocks, route.why) == ("decode-1", 40, Why.CACHE)


@pytest.mark.requirement("router:load")
def test_a_turn_leaves_its_blocks_when_their_holder_is_too_busy() -> None:
    core = router()
    holder, _ = core.register(about("decode-0"), 0), core.register(about("decode-1"), 0)
    core.index.store("decode-0", ROOT, digests(40))
    holder.load = Load(running=8, waiting=4)
    route = core.route(prompt(41), 0)
    assert (route.decode.worker_id, route.decode_blocks, route.why) == ("decode-1", 0, Why.LOAD)


def test_siblings_of_a_burst_follow_the_first_before_any_block_event() -> None:
    core = router(threshold=0)
    for name in ("decode-0", "decode-1"):
        core.register(about(name), 0)
    first = core.route(prompt(40), 0)
    second = core.route(prompt(40), 0.01)
    assert second.decode is first.decode
    assert second.decode_blocks == 0, "what is only expected is not told as held"


def test_a_burst_of_strangers_spreads_before_any_load_report() -> None:
    core = router(threshold=0)
    for name in ("decode-0", "decode-1"):
        core.register(about(name), 0)
    chosen = [core.route(prompt(8, branch), 0.0).decode.worker_id for branch in range(4)]
    assert chosen.count("decode-0") == 2


def test_without_decode_workers_of_the_model_there_is_an_error() -> None:
    core = router()
    core.register(about("decode-0", model="other"), 0)
    core.register(about("prefill-0", role=Role.PREFILL), 0)
    with pytest.raises(TidemillError) as caught:
        core.route(prompt(1), 0)
    assert caught.value.reason is Reason.NO_WORKERS


@pytest.mark.parametrize(("held", "chosen"), [(0, True), (24, True), (25, False), (40, False)])
def test_a_prefill_worker_is_chosen_by_what_decode_lacks(held: int, chosen: bool) -> None:
    core = router(threshold=256)
    core.register(about("decode-0"), 0)
    core.register(about("prefill-0", role=Role.PREFILL), 0)
    core.index.store("decode-0", ROOT, digests(40)[:held])
    route = core.route(prompt(40), 0)
    assert (route.prefill is not None) is chosen


def test_of_prefill_workers_the_one_with_the_blocks_is_chosen() -> None:
    core = router(threshold=1)
    for name in ("prefill-0", "prefill-1"):
        core.register(about(name, role=Role.PREFILL), 0)
    core.register(about("decode-0"), 0)
    core.index.store("prefill-1", ROOT, digests(10))
    route = core.route(prompt(40), 0)
    assert route.prefill and (route.prefill.worker_id, route.prefill_blocks) == ("prefill-1", 10)


def test_a_prefill_worker_with_another_kv_layout_is_never_paired() -> None:
    core = router(threshold=1)
    core.register(about("decode-0"), 0)
    core.register(replace(about("prefill-0", role=Role.PREFILL), fingerprint=f"{MODEL}/bfloat16"), 0)
    core.register(replace(about("prefill-1", role=Role.PREFILL), block_size=32), 0)
    assert core.route(prompt(40), 0).prefill is None


def test_a_threshold_of_zero_never_disaggregates() -> None:
    core = router(threshold=0)
    core.register(about("decode-0"), 0)
    core.register(about("prefill-0", role=Role.PREFILL), 0)
    assert core.route(prompt(400), 0).prefill is None


def test_a_new_epoch_starts_with_an_empty_cache() -> None:
    core = router()
    core.register(about("decode-0", epoch=1), 0)
    core.index.store("decode-0", ROOT, digests(4))
    core.register(about("decode-0", epoch=2), 0)
    assert len(core.index) == 0


@pytest.mark.requirement("router:silence")
def test_a_silent_worker_goes_with_its_blocks() -> None:
    core = router(silent_seconds=10)
    silent, alive = core.register(about("decode-0"), 0), core.register(about("decode-1"), 0)
    core.index.store("decode-0", ROOT, digests(4))
    alive.heard = 5
    assert core.drop_silent(9.9) == []
    assert core.drop_silent(10) == [silent]
    assert (list(core.workers), len(core.index)) == ([alive], 0)


@given(
    states=st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans(), st.integers(0, 8)), min_size=1, max_size=6),
    session=st.sampled_from(["", "s"]),
)
def test_an_excluded_draining_or_foreign_worker_is_never_chosen(
    states: list[tuple[bool, bool, bool, int]], session: str
) -> None:
    core = router(threshold=1)
    allowed = set()
    excluded = set()
    for n, (draining, out, foreign, held) in enumerate(states):
        for role in (Role.DECODE, Role.PREFILL):
            registration = core.register(about(f"{role}-{n}", n + 1, role, "other" if foreign else MODEL), 0)
            registration.draining = draining
            core.index.store(registration.worker_id, ROOT, digests(held))
            excluded |= {(registration.worker_id, n + 1)} if out else set()
            allowed |= set() if draining or out or foreign else {registration.worker_id}
    asked = prompt(8, excluded=frozenset(excluded), session=session)
    if not allowed:
        with pytest.raises(TidemillError):
            core.route(asked, 0)
        return
    route = core.route(asked, 0)
    chosen = {route.decode.worker_id} | ({route.prefill.worker_id} if route.prefill else set())
    assert chosen <= allowed
