"""Life of a service: logging, lifeline, plain port, gRPC with health and reflection, graceful stop."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable
from typing import Protocol

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tidemill_common import lifeline, telemetry
from tidemill_common.config import ServiceSettings
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.probes import Probes
from tidemill_common.rpc import OPTIONS, Boundary

NEVER_SHARE_PORTS = ("grpc.so_reuseport", 0)


class Service(Protocol):
    """What a service brings to its process.

    ``attach`` adds servicers to the server and returns their full proto names. ``start`` runs once gRPC listens at ``address``
    and returns when the service is ready; what it returns is added to the announcement. ``drain`` runs when the process was
    asked to stop, before calls are waited for; ``stop`` runs last and frees everything.
    """

    def attach(self, server: grpc.aio.Server) -> list[str]:
        """Add servicers; return their full names."""
        ...

    async def start(self, address: str) -> dict[str, object]:
        """Become ready."""
        ...

    async def drain(self) -> None:
        """Take no new work."""
        ...

    async def stop(self) -> None:
        """Free everything."""
        ...


def run(name: str, read_settings: Callable[[], ServiceSettings], build: Callable[[], Service]) -> None:
    """Body of each ``__main__``: serve until SIGTERM or SIGINT. A catalogue error at start exits with 1 and its sentence."""
    lifeline.hold()
    try:
        settings = read_settings()
        telemetry.configure_logging(name, settings.log_level)
        asyncio.run(_serve(name, settings, build))
    except TidemillError as error:
        sys.exit(f"tidemill {name}: {error.sentence()}")
    finally:
        # What lives now dies with the process: the interpreter's last collection would only walk it, for seconds in a worker.
        gc.freeze()


async def _serve(name: str, settings: ServiceSettings, build: Callable[[], Service]) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    probes = Probes(settings.probe_host, settings.probe_port)
    probes.start()
    service = build()
    server = grpc.aio.server(interceptors=[Boundary(name)], options=[*OPTIONS, NEVER_SHARE_PORTS])
    names = service.attach(server)
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    port = _bind(server, f"{settings.host}:{settings.port}")
    address = settings.advertise or f"{settings.host}:{port}"
    await server.start()
    try:
        started = asyncio.ensure_future(service.start(address))
        asked = asyncio.ensure_future(stopping.wait())
        await asyncio.wait({started, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not started.done():
            started.cancel()
            await asyncio.wait({started})
            return
        extra = await started
        # What was made so far stays: a collection that walked torch's modules would stop a worker for tenths of a second.
        gc.freeze()
        for each in [*names, ""]:
            await checks.set(each, health_pb2.HealthCheckResponse.SERVING)
        probes.ready = True
        ready = {
            "service": name,
            "pid": os.getpid(),
            "address": address,
            "probe": f"{settings.probe_host}:{probes.port}",
        }
        lifeline.announce(ready | extra)
        await asked
        probes.ready = False
        await checks.enter_graceful_shutdown()
        await service.drain()
    finally:
        await server.stop(settings.drain_seconds)
        await service.stop()
        probes.stop()


def _bind(server: grpc.aio.Server, address: str) -> int:
    try:
        return int(server.add_insecure_port(address))
    except RuntimeError as error:
        raise TidemillError(Reason.CONFIG, f"gRPC can't listen on {address}: is the port taken?") from error
