from __future__ import annotations

import asyncio
import socket

import grpc.aio
import pytest

from tidemill_common.errors import TidemillError
from tidemill_common.server import NEVER_SHARE_PORTS
from tidemill_harness.ports import HeldPorts
from tidemill_harness.stack_plan import LOOPBACK


def _listen(port: int) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((LOOPBACK, port))
    server.listen()
    return server


def test_a_held_port_can_be_served_beside_the_holder_again_and_again() -> None:
    with HeldPorts(LOOPBACK) as held:
        for port in (held.take(["a"])["a"], held.prefer(0)[0]) * 2:
            with _listen(port) as server, socket.create_connection((LOOPBACK, port)):
                server.accept()[0].close()


async def test_a_held_port_can_be_served_by_grpc() -> None:
    with HeldPorts(LOOPBACK) as held:
        port = held.take(["a"])["a"]
        for _ in range(2):
            server = grpc.aio.server(options=[NEVER_SHARE_PORTS])
            assert server.add_insecure_port(f"{LOOPBACK}:{port}") == port
            await server.start()
            async with grpc.aio.insecure_channel(f"{LOOPBACK}:{port}") as channel:
                await asyncio.wait_for(channel.channel_ready(), 30)
            await server.stop(0)


def test_nobody_else_gets_a_held_port() -> None:
    with HeldPorts(LOOPBACK) as held, socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((LOOPBACK, held.take(["a"])["a"]))


def test_held_ports_differ() -> None:
    with HeldPorts(LOOPBACK) as held:
        names = [str(n) for n in range(50)]
        assert len(set(held.take(names).values())) == 50


@pytest.mark.requirement("stack:port-taken")
def test_where_the_port_asked_for_is_taken_a_free_one_is_used() -> None:
    with _listen(0) as other, HeldPorts(LOOPBACK) as held:
        taken = other.getsockname()[1]
        port, as_asked = held.prefer(taken)
        assert port != taken
        assert not as_asked


def test_a_port_that_may_not_be_used_is_named() -> None:
    with HeldPorts("192.0.2.1") as held, pytest.raises(TidemillError, match="port 8080 can't be used"):
        held.prefer(8080)
