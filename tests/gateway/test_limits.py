from __future__ import annotations

import asyncio

import pytest

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway.limits import Limits


def test_a_turn_above_the_bound_is_refused_and_one_that_ended_makes_room() -> None:
    limits = Limits(max_turns=1, max_connections=1)
    with limits.turn():
        with pytest.raises(TidemillError) as error, limits.turn():
            pass
        assert error.value.reason is Reason.OVERLOADED
    with limits.turn():
        assert limits.turns == 1
    assert limits.turns == 0


def test_a_turn_that_fails_is_not_counted_for_ever() -> None:
    limits = Limits(1, 1)
    with pytest.raises(ZeroDivisionError), limits.turn():
        raise ZeroDivisionError
    assert limits.turns == 0


async def test_idle_waits_for_turns_and_connections() -> None:
    limits = Limits(1, 1)
    with limits.connection():
        assert limits.connections_full
        waiting = asyncio.ensure_future(limits.idle())
        with limits.turn():
            pass
        await asyncio.sleep(0)
        assert not waiting.done()
    await waiting
