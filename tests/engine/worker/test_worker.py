from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.fleet import fleet
from tests.support.tiny_model import make_tiny_model
from tests.support.waiting import until
from tidemill.router.v1 import router_service_pb2 as pb
from tidemill_common.errors import Reason, TidemillError
from tidemill_decode.config import Settings
from tidemill_engine.worker.worker import Worker
from tidemill_router.service import RouterProcess


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.mark.requirement("worker:router-outage")
async def test_turns_go_on_while_no_router_is_there(tiny: Path) -> None:
    async with fleet(tiny) as running:
        router: RouterProcess = running.router.process
        router.servicer.close()
        await running.router.server.stop(0)
        turn = await running.generate(running.request(list(range(3, 103)), prefilled=True))
        assert turn.hops == ["prefill", "decode"]
        assert len(turn.tokens) == 24


async def test_what_a_worker_caches_shows_at_the_router(tiny: Path) -> None:
    async with fleet(tiny) as running:
        router: RouterProcess = running.router.process
        await running.generate(running.request(list(range(3, 103)), prefilled=True, max_tokens=1))
        await until(lambda: len(router.servicer.router.index) >= 12)


async def test_a_worker_whose_engine_died_ends_its_process(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: ended.append((pid, number)))
    async with fleet(tiny) as running:
        running.decode.process.worker.engine.stop()
        await until(lambda: ended == [(os.getpid(), signal.SIGTERM)])


async def test_a_worker_that_still_loads_says_so() -> None:
    worker = Worker("decode", pb.ROLE_DECODE, Settings(model_dir=Path("m"), router="r:1"))
    with pytest.raises(TidemillError) as caught:
        _ = worker.engine
    assert caught.value.reason is Reason.UNAVAILABLE
    assert worker.ref.epoch


async def test_each_life_has_an_epoch_of_its_own() -> None:
    settings = Settings(model_dir=Path("m"), router="r:1", worker_id="decode-0")
    first, second = Worker("decode", pb.ROLE_DECODE, settings), Worker("decode", pb.ROLE_DECODE, settings)
    assert first.ref.worker_id == second.ref.worker_id == "decode-0"
    assert first.ref.epoch != second.ref.epoch
