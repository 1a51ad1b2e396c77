from __future__ import annotations

import pytest

from tidemill_common.errors import Reason, TidemillError
from tidemill_engine.worker.membership import Membership, Peer

PEER = Peer("prefill-0", 7, "p:1")


def test_a_peer_is_found_by_id_and_epoch_through_any_router() -> None:
    membership = Membership()
    membership.update("a", [])
    membership.update("b", [PEER])
    assert membership.resolve("prefill-0", 7) == PEER


@pytest.mark.parametrize(("worker_id", "epoch"), [("prefill-1", 7), ("prefill-0", 8), ("", 0)])
def test_an_unknown_id_or_epoch_is_refused(worker_id: str, epoch: int) -> None:
    membership = Membership()
    membership.update("a", [PEER])
    with pytest.raises(TidemillError) as caught:
        membership.resolve(worker_id, epoch)
    assert caught.value.reason is Reason.WORKER_UNKNOWN


def test_what_a_router_no_longer_lists_is_gone() -> None:
    membership = Membership()
    membership.update("a", [PEER])
    membership.update("a", [])
    with pytest.raises(TidemillError):
        membership.resolve("prefill-0", 7)
