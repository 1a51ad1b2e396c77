from __future__ import annotations

import asyncio
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator

import pytest

from tidemill_common import probes
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.probes import Probes


@pytest.fixture
async def served() -> AsyncIterator[Probes]:
    each = Probes("127.0.0.1", 0)
    each.start()
    yield each
    await asyncio.to_thread(each.stop)


def read(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def get(served: Probes, path: str) -> tuple[int, str]:
    return await asyncio.to_thread(read, served.port, path)


@pytest.mark.requirement("probes:plain-port")
async def test_a_process_lives_before_it_is_ready(served: Probes) -> None:
    assert await get(served, "/livez") == (200, "ok\n")
    assert await get(served, "/readyz") == (503, "not yet\n")
    served.ready = True
    assert await get(served, "/readyz") == (200, "ok\n")


@pytest.mark.requirement("probes:plain-port")
async def test_metrics_are_prometheus_text(served: Probes) -> None:
    status, text = await get(served, "/metrics")
    assert status == 200
    assert "# TYPE tidemill_errors_total counter" in text


async def test_another_path_says_what_is_here(served: Probes) -> None:
    status, text = await get(served, "/admin")
    assert status == 404
    assert "/livez" in text


@pytest.mark.requirement("probes:stuck-loop")
async def test_an_event_loop_that_stopped_is_not_alive(served: Probes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "STUCK_AFTER_SECONDS", -1.0)
    assert (await get(served, "/livez"))[0] == 503


async def test_a_client_that_sends_nothing_does_not_hold_up_the_others(served: Probes) -> None:
    with socket.create_connection(("127.0.0.1", served.port)):
        assert (await get(served, "/livez"))[0] == 200


async def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TidemillError, match=f"127.0.0.1:{port}") as caught:
            Probes("127.0.0.1", port)
    assert caught.value.reason is Reason.CONFIG
