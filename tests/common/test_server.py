from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.common.children import Child
from tests.common.echo_process import NAME
from tests.common.test_probes import read
from tests.support.waiting import until
from tidemill_common import rpc

MODULE = ("-m", "tests.common.echo_process")
pytestmark = pytest.mark.stack


@pytest.fixture
def child() -> Iterator[Child]:
    each = Child(*MODULE)
    yield each
    each.process.kill()
    each.finish()


def probe_port(ready: dict[str, Any]) -> int:
    return int(str(ready["probe"]).rsplit(":", 1)[1])


def connected(ready: dict[str, Any]) -> Any:
    return rpc.connect(str(ready["address"]))


async def health(channel: grpc.aio.Channel, service: str = "") -> int:
    stub = health_pb2_grpc.HealthStub(channel)
    return int((await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=20)).status)


async def listed(channel: grpc.aio.Channel) -> list[str]:
    async def ask() -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")

    call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(ask(), timeout=20)
    answer = await call.read()
    return [service.name for service in answer.list_services_response.service]


@pytest.mark.requirement("service:life-cycle")
async def test_a_ready_service_announces_itself_and_is_healthy_listed_and_ready(child: Child) -> None:
    ready = await asyncio.to_thread(child.announcement)
    assert (ready["service"], ready["pid"]) == ("echo", child.process.pid)
    assert ready["url"] == f"echo://{ready['address']}"
    async with rpc.connect(ready["address"]) as channel:
        assert await health(channel) == await health(channel, NAME) == health_pb2.HealthCheckResponse.SERVING
        assert set(await listed(channel)) == {NAME, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    assert (await asyncio.to_thread(read, probe_port(ready), "/readyz"))[0] == 200


@pytest.mark.requirement("service:graceful-stop")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_running_call_ends_in_its_own_time_after_the_signal(child: Child, number: signal.Signals) -> None:
    ready = await asyncio.to_thread(child.announcement)
    async with connected(ready) as channel:
        call = channel.stream_stream(f"/{NAME}/Talk")(timeout=50)
        await call.write(b"before")
        assert await call.read() == b"before"
        child.process.send_signal(number)
        assert child.process.stderr is not None
        assert await asyncio.to_thread(child.process.stderr.readline) == "draining\n"
        assert (await asyncio.to_thread(read, probe_port(ready), "/readyz"))[0] == 503
        await call.write(b"after")
        assert await call.read() == b"after"
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.OK
    status, errors = await asyncio.to_thread(child.finish)
    assert (status, errors.splitlines()[-1]) == (0, "stopped")


async def test_a_call_that_never_ends_is_cut_after_the_grace() -> None:
    child = Child(*MODULE, TIDEMILL_ECHO_DRAIN_SECONDS="0.2")
    ready = await asyncio.to_thread(child.announcement)
    async with connected(ready) as channel:
        call = channel.stream_stream(f"/{NAME}/Talk")(timeout=50)
        await call.write(b"x")
        assert await call.read() == b"x"
        child.process.terminate()
        status, _ = await asyncio.to_thread(child.finish)
        assert status == 0
        assert await call.code() is not grpc.StatusCode.OK


async def test_a_signal_ends_a_service_that_is_still_starting() -> None:
    child = Child(*MODULE, "hang")
    assert child.process.stderr is not None
    assert await asyncio.to_thread(child.process.stderr.readline) == "starting\n"
    child.process.terminate()
    status, errors = await asyncio.to_thread(child.finish)
    assert (status, errors) == (0, "stopped\n")


@pytest.mark.requirement("service:clear-start-failure")
async def test_a_catalogue_error_at_start_is_one_line_with_advice() -> None:
    child = Child(*MODULE, "fail")
    status, errors = await asyncio.to_thread(child.finish)
    assert status == 1
    assert errors.splitlines()[-1].startswith("tidemill echo: no worker to echo with. No decode worker is registered")
    assert "Traceback" not in errors
    assert child.announcement() == {}


async def test_any_other_error_at_start_ends_the_process_with_its_trace() -> None:
    child = Child(*MODULE, "broken")
    status, errors = await asyncio.to_thread(child.finish)
    assert status == 1
    assert "ZeroDivisionError" in errors


@pytest.mark.requirement("config:unknown-refused")
async def test_an_unknown_setting_ends_the_process_with_its_name() -> None:
    child = Child(*MODULE, TIDEMILL_ECHO_COLOUR="red")
    status, errors = await asyncio.to_thread(child.finish)
    assert status == 1
    assert "TIDEMILL_ECHO_COLOUR" in errors
    assert "Traceback" not in errors


@pytest.mark.requirement("service:clear-start-failure")
@pytest.mark.parametrize("setting", ["PORT", "PROBE_PORT"])
async def test_a_port_in_use_ends_the_process_with_its_name(setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        child = Child(*MODULE, **{f"TIDEMILL_ECHO_{setting}": port})
        status, errors = await asyncio.to_thread(child.finish)
    assert status == 1
    assert f"127.0.0.1:{port}" in errors
    assert "Traceback" not in errors


async def test_two_services_never_share_a_port(child: Child) -> None:
    ready = await asyncio.to_thread(child.announcement)
    other = Child(*MODULE, TIDEMILL_ECHO_PORT=str(ready["address"]).rsplit(":", 1)[1])
    status, errors = await asyncio.to_thread(other.finish)
    assert status == 1
    assert str(ready["address"]) in errors


async def test_an_advertised_address_is_what_others_hear() -> None:
    child = Child(*MODULE, TIDEMILL_ECHO_ADVERTISE="echo.example:50051")
    ready = await asyncio.to_thread(child.announcement)
    assert ready["address"] == "echo.example:50051"
    child.let_go()
    await until(lambda: child.process.poll() is not None)
    assert (await asyncio.to_thread(child.finish))[0] == 0
