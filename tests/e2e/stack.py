"""A local stack of real processes, run by `tidemill up` with folders of its own and the machine's models."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.support.waiting import until
from tidemill.decode.v1 import decode_service_pb2, decode_service_pb2_grpc
from tidemill.gateway.v1 import gateway_service_pb2, gateway_service_pb2_grpc
from tidemill.prefill.v1 import prefill_service_pb2, prefill_service_pb2_grpc
from tidemill.router.v1 import router_service_pb2, router_service_pb2_grpc
from tidemill_common import paths, rpc
from tidemill_harness import stack_file
from tidemill_harness.stack_file import ServiceEntry, StackFile

START_SECONDS, RECOVER_SECONDS, CALL_SECONDS = 240.0, 180.0, 30.0
SERVICES = ("decode", "gateway", "prefill", "router", "safety", "tokenizer")
TIDEMILL = (sys.executable, "-m", "tidemill_harness")

_WORKERS = {
    "decode": (decode_service_pb2_grpc.DecodeServiceStub, decode_service_pb2.GetWorkerRequest),
    "prefill": (prefill_service_pb2_grpc.PrefillServiceStub, prefill_service_pb2.GetWorkerRequest),
}


@dataclass(frozen=True)
class Stack:
    """A running stack.

    Attributes:
        process: `tidemill up`.
        environment: variables with which commands find this stack and no other.
        home: its folder.
    """

    process: subprocess.Popen[str]
    environment: Mapping[str, str]
    home: Path

    @classmethod
    def start(cls, home: Path, arguments: tuple[str, ...], settings: Mapping[str, str]) -> Stack:
        """Run `tidemill up` with ``arguments``; ``settings`` are variables that its services read."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")} | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "XDG_DATA_HOME": str(paths.data_dir().parent),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_STATE_HOME": str(home / "state"),
        }
        with (home / "stderr").open("a", encoding="utf-8") as stderr:
            process = subprocess.Popen(
                [*TIDEMILL, "up", "--port", "0", "--allow-forced-output", *arguments],
                env={**environment, **settings},
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        stack = cls(process, environment, home)
        stack._await_ready()
        return stack

    def stop(self) -> None:
        """End it as Ctrl-C does. Raises TimeoutExpired when it does not end."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.communicate(timeout=CALL_SECONDS * 2)
        finally:
            self.process.kill()

    @property
    def file(self) -> StackFile:
        """What its stack file says now."""
        found = stack_file.read(self.home / "state" / "tidemill" / "stack.json")
        if found is None:
            raise RuntimeError(f"the stack has ended: {(self.home / 'stderr').read_text(encoding='utf-8')}")
        return found

    @property
    def key(self) -> str:
        """An API key."""
        return Path(self.file.key_file).read_text(encoding="utf-8").strip()

    def entry(self, name: str) -> ServiceEntry:
        """A process by its name."""
        return next(each for each in self.file.services if each.name == name)

    def pids(self, service: str) -> dict[int, str]:
        """Names of a service's processes by their ids."""
        return {each.pid: each.name for each in self.file.services if each.service == service}

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `tidemill` to its end."""
        return subprocess.run(
            [*TIDEMILL, *arguments], env=self.environment, capture_output=True, text=True, timeout=START_SECONDS, check=False
        )

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to one process."""
        os.kill(self.entry(name).pid, number)

    def kill(self, *names: str) -> dict[str, int]:
        """kill -9; what to hand to ``recovered``: the ids of the killed."""
        killed = {name: self.entry(name).pid for name in names}
        for pid in killed.values():
            os.kill(pid, signal.SIGKILL)
        return killed

    async def recovered(self, killed: Mapping[str, int]) -> None:
        """Wait until others run in their place, everything is ready and every worker is registered."""
        await until(lambda: all(self.entry(name).pid not in (0, pid) for name, pid in killed.items()), RECOVER_SECONDS)
        await until(lambda: self.file.ready, RECOVER_SECONDS)
        names = {each.name for each in self.file.services if each.service in _WORKERS}

        async def registered() -> bool:
            return {each.ref.worker_id for each in await self.workers()} == names

        await until(registered, RECOVER_SECONDS)

    async def workers(self) -> list[router_service_pb2.Worker]:
        """Workers as the router knows them."""
        async with rpc.connect(self.entry("router").address) as channel:
            stub = router_service_pb2_grpc.RouterServiceStub(channel)
            request = router_service_pb2.ListWorkersRequest()
            return list((await stub.ListWorkers(request, timeout=CALL_SECONDS, wait_for_ready=True)).workers)

    async def sequences(self, name: str) -> tuple[int, int]:
        """Sequences of a worker, and the blocks that they hold."""
        entry = self.entry(name)
        stub_class, request = _WORKERS[entry.service]
        async with rpc.connect(entry.address) as channel:
            worker = await stub_class(channel).GetWorker(request(), timeout=CALL_SECONDS)
        return worker.sequences, worker.used_blocks

    async def turns(self) -> int:
        """Turns that the gateway runs."""
        async with rpc.connect(self.entry("gateway").address) as channel:
            stub = gateway_service_pb2_grpc.GatewayServiceStub(channel)
            return int((await stub.GetStatus(gateway_service_pb2.GetStatusRequest(), timeout=CALL_SECONDS)).turns)

    async def idle(self) -> None:
        """Wait until no turn, sequence or block in use is left anywhere; that none leaks is what this shows."""

        async def nothing() -> bool:
            counts = [await self.sequences(each.name) for each in self.file.services if each.service in _WORKERS]
            return not any(map(any, counts)) and await self.turns() == 0

        await until(nothing)

    async def metric(self, name: str, metric: str, **labels: str) -> float:
        """A sample of a process's metrics; 0 while it has none."""
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=CALL_SECONDS) as client:
            text = (await client.get(f"http://{self.entry(name).probe}/metrics")).text
        samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        return sum(each.value for each in samples if each.name == metric and labels.items() <= each.labels.items())

    def status(self) -> dict[str, Any]:
        """`tidemill status --json`."""
        return dict(json.loads(self.command("status", "--json").stdout))

    def _await_ready(self) -> None:
        stdout = self.process.stdout
        line = stdout.readline() if stdout and select.select([stdout], [], [], START_SECONDS)[0] else ""
        if not line.startswith("ready "):
            self.process.kill()
            self.process.communicate()
            raise RuntimeError(f"no ready line: {line!r} {(self.home / 'stderr').read_text(encoding='utf-8')}")


class Stacks:
    """One stack at a time, since each takes gigabytes; kept for as long as the next test wants the same."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._wanted: object = None
        self._running: Stack | None = None

    def get(self, *arguments: str, **settings: str) -> Stack:
        """The stack of these arguments and settings."""
        wanted = (arguments, settings)
        if self._running is None or self._wanted != wanted or self._running.process.poll() is not None:
            self.stop()
            self._running = Stack.start(self.home, arguments, settings)
            self._wanted = wanted
        return self._running

    def stop(self) -> None:
        """Stop what runs."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()
