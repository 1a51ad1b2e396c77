from __future__ import annotations

import asyncio
import threading

import pytest

from tidemill_common.errors import Reason, TidemillError
from tidemill_tokenizer.pool import Pool


@pytest.mark.requirement("tokenizer:bounded")
async def test_jobs_beyond_threads_and_queue_are_refused_and_room_comes_back() -> None:
    pool, gate = Pool(threads=1, waiting=1), threading.Event()
    running = [asyncio.ensure_future(pool.run(lambda: gate.wait(10))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(TidemillError) as refused:
        await pool.run(lambda: True)
    assert refused.value.reason == Reason.OVERLOADED
    gate.set()
    assert await asyncio.gather(*running) == [True, True]
    assert await pool.run(lambda: 5) == 5
    pool.close()


async def test_a_cancelled_callers_waiting_job_never_runs() -> None:
    pool, gate, ran = Pool(threads=1, waiting=1), threading.Event(), threading.Event()
    first = asyncio.ensure_future(pool.run(lambda: gate.wait(10)))
    second = asyncio.ensure_future(pool.run(ran.set))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait({second})
    gate.set()
    assert await first
    assert await pool.run(ran.is_set) is False
    pool.close()


async def test_a_jobs_error_reaches_its_caller() -> None:
    pool = Pool(threads=1, waiting=0)
    with pytest.raises(ZeroDivisionError):
        await pool.run(lambda: 1 // 0)
    pool.close()
