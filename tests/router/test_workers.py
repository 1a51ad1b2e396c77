from __future__ import annotations

from dataclasses import replace

import pytest

from tests.router.support import about
from tidemill_common.errors import Reason, TidemillError
from tidemill_router.workers import Workers


@pytest.mark.parametrize("missing", [{"epoch": 0}, {"worker_id": ""}, {"address": ""}, {"fingerprint": ""}, {"block_size": 0}])
def test_an_incomplete_hello_is_refused_by_the_field_missing(missing: dict[str, int | str]) -> None:
    with pytest.raises(TidemillError) as caught:
        Workers(8).register(replace(about(), **missing), 0)  # type: ignore[arg-type]
    assert (caught.value.reason, caught.value.param) == (Reason.INVALID_REQUEST, next(iter(missing)))


def test_a_second_worker_of_the_same_id_and_epoch_is_refused() -> None:
    workers = Workers(8)
    workers.register(about(), 0)
    with pytest.raises(TidemillError, match="registered with this epoch already"):
        workers.register(about(), 1)


def test_a_new_epoch_takes_the_place_of_the_old_one_for_good() -> None:
    workers = Workers(8)
    old = workers.register(about(epoch=1), 0)
    new = workers.register(about(epoch=2), 0)
    assert list(workers) == [new]
    assert old.ended and old.ended.reason is Reason.WORKER_UNKNOWN
    with pytest.raises(TidemillError, match="newer"):
        workers.register(about(epoch=1), 0)


def test_dropping_a_replaced_worker_leaves_its_successor() -> None:
    workers = Workers(8)
    old, new = workers.register(about(epoch=1), 0), workers.register(about(epoch=2), 0)
    assert not workers.drop(old, TidemillError(Reason.WORKER_LOST, "its stream ended"))
    assert list(workers) == [new]


def test_one_worker_too_many_is_refused() -> None:
    workers = Workers(1)
    workers.register(about("a"), 0)
    with pytest.raises(TidemillError) as caught:
        workers.register(about("b"), 0)
    assert caught.value.reason is Reason.OVERLOADED


def test_the_version_grows_with_each_change_of_membership() -> None:
    workers = Workers(8)
    registration = workers.register(about(), 0)
    assert workers.version == 1
    workers.drop(registration, TidemillError(Reason.WORKER_LOST, "its stream ended"))
    assert workers.version == 2


def test_a_gap_in_block_events_is_an_error_and_a_run_is_not() -> None:
    registration = Workers(8).register(about(), 0)
    registration.count_events(1, 3)
    registration.count_events(4, 1)
    with pytest.raises(TidemillError) as caught:
        registration.count_events(6, 1)
    assert caught.value.reason is Reason.EVENT_GAP


def test_turns_just_sent_count_until_reports_must_show_them() -> None:
    registration = Workers(8).register(about(), 0)
    registration.assigned.extend([(0.0, 100), (0.2, 50)])
    assert registration.unreported(0.2, 0.25) == (2, 150)
    assert registration.unreported(0.3, 0.25) == (1, 50)
