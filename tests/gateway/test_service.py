from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import websockets

from tests.gateway.stack import Socket, Stack, make_settings, running, serving, text_of
from tests.support.fake_services import FakeServices, make_model_dir
from tidemill.gateway.v1 import gateway_service_pb2, gateway_service_pb2_grpc
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.keys import KeyRing
from tidemill_common.model_dir import ModelProfile
from tidemill_gateway.config import GatewaySettings
from tidemill_gateway.service import GatewayService


def settings(directory: Path, **given: Any) -> GatewaySettings:
    """Settings whose services are not there, with one key."""
    ring = KeyRing()
    ring.add("default")
    ring.save(directory / "keys.json")
    return make_settings(directory, FakeServices(address="127.0.0.1:1"), **given)


@pytest.mark.requirement("gateway:no-keys-no-start")
async def test_without_keys_the_service_is_not_built(tmp_path: Path) -> None:
    with pytest.raises(TidemillError, match="holds no API key") as error:
        GatewayService(settings(tmp_path, keys_file=tmp_path / "none.json"))
    assert error.value.reason is Reason.CONFIG


async def test_scripts_need_the_switch_for_forced_output(tmp_path: Path) -> None:
    scripts = tmp_path / "scripts.json"
    scripts.write_text('{"scripted": []}')
    with pytest.raises(TidemillError, match="ALLOW_FORCED_OUTPUT"):
        GatewayService(settings(tmp_path, scripts_file=scripts))


async def test_a_directory_that_is_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(TidemillError, match="no model directory"):
        GatewayService(settings(tmp_path, model_dir=tmp_path))


async def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path, fakes: FakeServices) -> None:
    make_model_dir(tmp_path / "other")
    ModelProfile("other", "chatml", "other", 100, (1,)).save(tmp_path / "other")
    settings(tmp_path)
    with pytest.raises(TidemillError) as error:
        async with serving(make_settings(tmp_path, fakes, model_dir=tmp_path / "other")):
            pass
    assert error.value.reason is Reason.MODEL_MISMATCH


async def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TidemillError, match=f"127.0.0.1:{port}") as error:
            async with running(tmp_path, http_port=port):
                pass
    assert error.value.reason is Reason.CONFIG


async def test_status_counts_what_is_held(stack: Stack) -> None:
    server = grpc.aio.server()
    stack.service.attach(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel, stack.socket() as client:
        await client.turn(input="Hi")
        stub: gateway_service_pb2_grpc.GatewayServiceAsyncStub = gateway_service_pb2_grpc.GatewayServiceStub(channel)
        status = await stub.GetStatus(gateway_service_pb2.GetStatusRequest(), timeout=10)
    assert (status.connections, status.turns, status.conversations, status.model) == (1, 0, 1, "fake")
    assert status.conversation_bytes > 0
    await server.stop(None)


async def test_a_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as first, first.socket() as client:
        before = (await client.turn(input="x" * 100, instructions="Be brief."))[-1]["response"]
    async with running(tmp_path) as second:
        second.service.authenticator._ring = KeyRing.load(tmp_path / "keys.json")
        async with second.socket() as client:
            follow = {"input": "More", "instructions": "Be brief.", "previous_response_id": before["id"]}
            after = (await client.turn(**follow))[-1]
        assert after["type"] == "response.completed"
        render = second.fakes.tokenizer.requests[-1]
        assert [item.WhichOneof("kind") for item in render.items] == ["model_output", "message"]
        assert after["response"]["usage"]["input_tokens"] > before["usage"]["total_tokens"]


async def test_a_model_that_is_rendered_whole_each_turn_keeps_sampled_ids(tmp_path: Path, fakes: FakeServices) -> None:
    fakes.tokenizer.appends = False
    settings(tmp_path)
    key, _ = (ring := KeyRing()).add("default")
    ring.save(tmp_path / "keys.json")
    async with serving(make_settings(tmp_path, fakes)) as (service, url):
        stack = Stack(service, fakes, url, key, key, tmp_path)
        async with stack.socket() as client:
            first = (await client.turn(input="Hi"))[-1]["response"]
            second = (await client.turn(input="More", previous_response_id=first["id"]))[-1]["response"]
        assert not fakes.tokenizer.requests[-1].state
        assert [item.WhichOneof("kind") for item in fakes.tokenizer.requests[-1].items] == [
            "message",
            "model_output",
            "message",
        ]
        assert second["usage"]["input_tokens_details"]["cached_tokens"] >= first["usage"]["total_tokens"] - 16


@pytest.mark.stack
@pytest.mark.requirement("gateway:process")
async def test_the_process_announces_serves_and_ends_at_sigterm(tmp_path: Path, fakes: FakeServices) -> None:
    key, _ = (ring := KeyRing()).add("default")
    ring.save(tmp_path / "keys.json")
    given = make_settings(tmp_path, fakes).model_dump(include={"model_dir", "tokenizer", "safety", "router", "http_port"})
    files = {name: tmp_path / name for name in ("digest_secret_file", "store_file")} | {"keys_file": tmp_path / "keys.json"}
    reading, writing = os.pipe()
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TIDEMILL_ANNOUNCE_FD": str(writing),
        **{f"TIDEMILL_GATEWAY_{name.upper()}": str(value) for name, value in (given | files).items()},
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tidemill_gateway", env=environment, pass_fds=[writing], stderr=asyncio.subprocess.PIPE
    )
    os.close(writing)
    with os.fdopen(reading) as pipe:
        announced = json.loads(await asyncio.to_thread(pipe.readline))
    headers = {"Authorization": f"Bearer {key}"}
    url = announced["url"].replace("http://", "ws://") + "/v1/responses"
    async with websockets.connect(url, additional_headers=headers, proxy=None) as connection:
        client = Socket(connection)
        assert text_of((await client.turn(input="Hi"))[-1]["response"]) == "Hello there."
        process.send_signal(signal.SIGTERM)
        assert (await client.event())["error"]["code"] == "websocket_connection_limit_reached"
    _, log = await process.communicate()
    assert process.returncode == 0, log.decode()
    assert b"trace" not in log, log.decode()
