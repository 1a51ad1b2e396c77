from __future__ import annotations

from tidemill_engine.events import BlocksCleared, BlocksRemoved, BlocksStored
from tidemill_engine.held_chains import HeldChains


def test_what_is_held_can_be_told_anew_parents_first() -> None:
    held = HeldChains()
    held.apply([BlocksStored(b"r", (b"1", b"2")), BlocksStored(b"1", (b"3",)), BlocksStored(b"2", (b"4",))])
    held.apply([BlocksRemoved((b"4",))])
    assert held.chains() == [BlocksStored(b"r", (b"1", b"2")), BlocksStored(b"1", (b"3",))]


def test_clearing_leaves_nothing() -> None:
    held = HeldChains()
    held.apply([BlocksStored(b"r", (b"1",)), BlocksCleared()])
    assert held.chains() == []
