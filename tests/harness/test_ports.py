from __future__ import annotations

import socket

import pytest

from tidemill_common.errors import TidemillError
from tidemill_harness.ports import HeldPorts
from tidemill_harness.stack_plan import LOOPBACK


def _listen(port: int, option: int) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, option, 1)
    server.bind((LOOPBACK, port))
    server.listen()
    return server


def test_a_held_port_can_be_served_beside_the_holder_again_and_again() -> None:
    with HeldPorts(LOOPBACK) as held:
        grpc_port, http_port = held.take(["a"])["a"], held.prefer(0)[0]
        for port, option in ((grpc_port, socket.SO_REUSEPORT), (http_port, socket.SO_REUSEADDR)) * 2:
            with _listen(port, option) as server, socket.create_connection((LOOPBACK, port)):
                server.accept()[0].close()


def test_nobody_else_gets_a_held_port() -> None:
    with HeldPorts(LOOPBACK) as held, socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((LOOPBACK, held.take(["a"])["a"]))


def test_held_ports_differ() -> None:
    with HeldPorts(LOOPBACK) as held:
        names = [str(n) for n in range(50)]
        assert len(set(held.take(names).values())) == 50


@pytest.mark.requirement("stack:port-taken")
def test_where_the_port_asked_for_is_taken_a_free_one_is_used() -> None:
    with _listen(0, socket.SO_REUSEADDR) as other, HeldPorts(LOOPBACK) as held:
        taken = other.getsockname()[1]
        port, as_asked = held.prefer(taken)
        assert port != taken
        assert not as_asked


def test_a_port_that_may_not_be_used_is_named() -> None:
    with HeldPorts("192.0.2.1") as held, pytest.raises(TidemillError, match="port 8080 can't be used"):
        held.prefer(8080)
