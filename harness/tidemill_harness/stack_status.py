"""What `tidemill status` tells: the stack file, each process as kernel and probe see it, and the services' own counts."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from tidemill_common import rpc
from tidemill_common.errors import TidemillError
from tidemill_harness.stack_file import ServiceEntry, StackFile

DEADLINE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """A service now; ``memory`` is its resident size in bytes, ``ready`` what its probe says."""

    entry: ServiceEntry
    ready: bool
    memory: int


@dataclass(frozen=True, slots=True)
class StackStatus:
    """A stack now.

    Attributes:
        stack: its stack file.
        services: its processes.
        workers: the workers as the router knows them, None when it does not answer.
        gateway: the gateway's counts, None when it does not answer.
    """

    stack: StackFile
    services: list[ServiceStatus]
    workers: list[dict[str, Any]] | None = None
    gateway: dict[str, Any] | None = None
    problems: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Everything, for `--json`."""
        head = {key: value for key, value in asdict(self.stack).items() if key != "services"}
        services = [asdict(each.entry) | {"ready": each.ready, "memory": each.memory} for each in self.services]
        return head | {"services": services, "workers": self.workers, "gateway": self.gateway, "problems": self.problems}


async def gather(stack: StackFile) -> StackStatus:
    """Ask every service at once. One that does not answer becomes a problem, never an error."""
    async with httpx.AsyncClient(timeout=DEADLINE_SECONDS, trust_env=False) as client:
        ready = asyncio.gather(*(_ready(client, entry) for entry in stack.services))
        problems: list[str] = []
        workers, gateway = await asyncio.gather(_workers(stack, problems), _gateway(stack, problems))
        services = [
            ServiceStatus(entry, is_ready, memory_of(entry.pid))
            for entry, is_ready in zip(stack.services, await ready, strict=True)
        ]
    return StackStatus(stack, services, workers, gateway, problems)


async def _ready(client: httpx.AsyncClient, entry: ServiceEntry) -> bool:
    if not entry.probe:
        return False
    try:
        return (await client.get(f"http://{entry.probe}/readyz")).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def memory_of(pid: int) -> int:
    """Resident bytes of a process; 0 where that can't be known."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")), 0)


def _address(stack: StackFile, service: str) -> str:
    return next((entry.address for entry in stack.services if entry.service == service), "")


async def _workers(stack: StackFile, problems: list[str]) -> list[dict[str, Any]] | None:
    from tidemill.router.v1 import router_service_pb2, router_service_pb2_grpc

    if not (address := _address(stack, "router")):
        problems.append("the router is down")
        return None
    async with rpc.connect(address) as channel:
        stub = router_service_pb2_grpc.RouterServiceStub(channel)
        try:
            with rpc.mapped_errors():
                answer = await stub.ListWorkers(router_service_pb2.ListWorkersRequest(), timeout=DEADLINE_SECONDS)
        except TidemillError as error:
            problems.append(f"the router does not answer: {error.message}")
            return None
    return [
        {
            "id": worker.ref.worker_id,
            "role": router_service_pb2.Role.Name(worker.role).removeprefix("ROLE_").lower(),
            "address": worker.address,
            "node_type": worker.node_type,
            "running": worker.load.running,
            "waiting": worker.load.waiting,
            "free_blocks": worker.load.free_blocks,
            "total_blocks": worker.load.total_blocks,
        }
        for worker in answer.workers
    ]


async def _gateway(stack: StackFile, problems: list[str]) -> dict[str, Any] | None:
    from tidemill.gateway.v1 import gateway_service_pb2, gateway_service_pb2_grpc

    if not (address := _address(stack, "gateway")):
        problems.append("the gateway is down")
        return None
    async with rpc.connect(address) as channel:
        stub = gateway_service_pb2_grpc.GatewayServiceStub(channel)
        try:
            with rpc.mapped_errors():
                answer = await stub.GetStatus(gateway_service_pb2.GetStatusRequest(), timeout=DEADLINE_SECONDS)
        except TidemillError as error:
            problems.append(f"the gateway does not answer: {error.message}")
            return None
    counts = ("connections", "turns", "conversations", "conversation_bytes")
    return {name: getattr(answer, name) for name in counts}


def services_table(status: StackStatus) -> Table:
    """The processes."""
    table = Table("service", "pid", "address", "state", "restarts", "memory", "log", box=None, pad_edge=False)
    for each in status.services:
        entry = each.entry
        state = entry.state if each.ready or entry.state != "ready" else "not ready"
        columns = (entry.name, str(entry.pid or "-"), entry.address or "-", state, str(entry.restarts))
        table.add_row(*map(escape, (*columns, decimal(each.memory) if each.memory else "-", Path(entry.log).name)))
    return table


def workers_table(workers: list[dict[str, Any]]) -> Table:
    """The workers as the router knows them."""
    table = Table("worker", "role", "node type", "running", "waiting", "blocks in use", box=None, pad_edge=False)
    for worker in workers:
        used = f"{worker['total_blocks'] - worker['free_blocks']} of {worker['total_blocks']}"
        table.add_row(*(str(worker[key]) for key in ("id", "role", "node_type", "running", "waiting")), used)
    return table
