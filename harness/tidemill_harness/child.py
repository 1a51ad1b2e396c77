"""One child process: started, awaited, started again with backoff when it dies, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill_common import lifeline
from tidemill_common.errors import Reason, TidemillError
from tidemill_harness import stack_logs
from tidemill_harness.stack_file import ServiceEntry
from tidemill_harness.stack_plan import ChildSpec

START_SECONDS = 180.0
STOP_SECONDS = 20.0
_KILL_SECONDS = 5.0
_LINE_LIMIT = 1 << 16


@dataclass(frozen=True, slots=True)
class Backoff:
    """When a dead child is started again.

    Attributes:
        first: seconds before the first restart; doubles with each failure.
        longest: seconds, at most.
        attempts: failures in a row after which the child is left down.
        steady: seconds of being ready after which failures are forgotten.
    """

    first: float = 0.2
    longest: float = 10.0
    attempts: int = 8
    steady: float = 30.0

    def delay(self, failures: int) -> float:
        """Seconds to wait after ``failures`` in a row, at least one."""
        return min(self.longest, self.first * 2.0 ** (failures - 1))


class Child:
    """A supervised process.

    ``environment`` is complete; ``lifeline_end`` is the pipe's read end that the child watches. ``changed`` is called after
    every change of state, ``report`` with a line for people when the child died.

    Attributes:
        spec: what runs.
        log: path of its log.
        state: starting, ready, restarting, failed or stopped.
        restarts: times it was started again.
        announcement: what the child said when it was ready; empty while it is not.
    """

    def __init__(
        self,
        spec: ChildSpec,
        environment: dict[str, str],
        lifeline_end: int,
        log: Path,
        changed: Callable[[], None],
        report: Callable[[str], None],
        backoff: Backoff,
    ) -> None:
        self.spec = spec
        self.log = log
        self.state = "starting"
        self.restarts = 0
        self.announcement: dict[str, Any] = {}
        self._environment = environment
        self._lifeline_end = lifeline_end
        self._changed = changed
        self._report = report
        self._backoff = backoff
        self._was_ready = False
        self._process: asyncio.subprocess.Process | None = None
        self._first = asyncio.get_running_loop().create_future()
        self._stopping = asyncio.Event()
        self._task = asyncio.create_task(self._supervise(), name=f"child {spec.name}")

    async def ready(self) -> None:
        """Wait for the first start. Raises TidemillError(CONFIG) with the log's last line when the child gave up first."""
        await asyncio.shield(self._first)

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL at the deadline; returns when the process is gone."""
        self._stopping.set()
        self.signal(signal.SIGTERM)
        done, _ = await asyncio.wait({self._task}, timeout=STOP_SECONDS)
        if not done:
            self.signal(signal.SIGKILL)
            await asyncio.wait({self._task}, timeout=_KILL_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if the process runs."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def entry(self) -> ServiceEntry:
        """How the stack file shows this child."""
        running = self._process is not None and self._process.returncode is None
        return ServiceEntry(
            service=self.spec.service,
            name=self.spec.name,
            pid=self._process.pid if running and self._process is not None else 0,
            address=str(self.announcement.get("address", "")),
            probe=str(self.announcement.get("probe", "")),
            log=str(self.log),
            restarts=self.restarts,
            state=self.state,
        )

    async def _supervise(self) -> None:
        failures, open_log = 0, stack_logs.open_new
        while not self._stopping.is_set():
            ready_at, code = await self._run(open_log(self.log))
            if self._stopping.is_set():
                break
            steady = ready_at is not None and time.monotonic() - ready_at >= self._backoff.steady
            failures = 1 if steady else failures + 1
            if not self._first.done():
                self._first.set_exception(self._failure(code))
                self._first.exception()
            if failures > self._backoff.attempts:
                self._set("failed")
                self._report(f"{self.spec.name} {_ending(code)} {failures} times in a row and is left down; see {self.log}")
                return
            await self._pause(failures, code)
            open_log = stack_logs.open_again
        self._set("stopped")

    async def _pause(self, failures: int, code: int) -> None:
        delay = self._backoff.delay(failures)
        self.restarts += 1
        self._set("restarting")
        if self._was_ready:
            self._report(f"{self.spec.name} {_ending(code)}; it starts again in {delay:.1f} s (log: {self.log})")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), delay)

    async def _run(self, log: int) -> tuple[float | None, int]:
        """Run the process to its end; returns when it became ready, if it did, and its exit status."""
        read_end, write_end = os.pipe()
        environment = self._environment | {
            lifeline.LIFELINE_FD: str(self._lifeline_end),
            lifeline.ANNOUNCE_FD: str(write_end),
        }
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self.spec.command,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(self._lifeline_end, write_end),
                start_new_session=True,
            )
        except OSError as error:
            os.write(log, f"{self.spec.command[0]!r} can't be started: {error}\n".encode())
            os.close(read_end)
            return None, 127
        finally:
            os.close(write_end)
            os.close(log)
        if self._stopping.is_set():
            self.signal(signal.SIGTERM)
        return await self._await_announcement(read_end), await self._process.wait()

    async def _await_announcement(self, read_end: int) -> float | None:
        try:
            line = await asyncio.wait_for(_read_line(read_end), START_SECONDS)
            self.announcement = json.loads(line) if line else {}
        except (TimeoutError, ValueError):
            self.signal(signal.SIGKILL)
            return None
        if not self.announcement:
            return None
        self._was_ready = True
        self._set("ready")
        if not self._first.done():
            self._first.set_result(None)
        return time.monotonic()

    def _failure(self, code: int) -> TidemillError:
        last = stack_logs.last_line(self.log)
        return TidemillError(Reason.CONFIG, f"{self.spec.name} {_ending(code)} before it was ready: {last} (log: {self.log})")

    def _set(self, state: str) -> None:
        if state != "ready":
            self.announcement = {}
        self.state = state
        self._changed()


def _ending(code: int) -> str:
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"


async def _read_line(descriptor: int) -> bytes:
    reader = asyncio.StreamReader(limit=_LINE_LIMIT)
    pipe = os.fdopen(descriptor, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        return await reader.readline()
    finally:
        transport.close()
