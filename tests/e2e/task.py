"""`tidemill run` as a process whose events a test reads as they come."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.e2e.stack import TIDEMILL, Stack

Event = dict[str, Any]
EVENT_SECONDS = 180.0
_LINE_BYTES = 1 << 20


class Task:
    """A running task.

    Attributes:
        events: what it said so far, with `--json`.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.events: list[Event] = []

    async def until(self, kind: str) -> Event:
        """Read up to the next event of a type."""
        while True:
            event = await self._event()
            if event is None:
                raise RuntimeError(f"the task ended before {kind}: {self.events[-3:]} {await self._errors()}")
            if event["type"] == kind:
                return event

    async def end(self) -> int:
        """Read to the end; the exit code."""
        while await self._event() is not None:
            pass
        async with asyncio.timeout(EVENT_SECONDS):
            return await self.process.wait()

    def of(self, kind: str) -> list[Event]:
        """Events of a type."""
        return [event for event in self.events if event["type"] == kind]

    async def _event(self) -> Event | None:
        assert self.process.stdout is not None
        async with asyncio.timeout(EVENT_SECONDS):
            line = await self.process.stdout.readline()
        if not line:
            return None
        self.events.append(json.loads(line))
        return self.events[-1]

    async def _errors(self) -> str:
        assert self.process.stderr is not None
        return (await self.process.stderr.read()).decode()


@asynccontextmanager
async def running(stack: Stack, workspace: Path, task: str, *arguments: str) -> AsyncIterator[Task]:
    """`tidemill run --json` against ``stack``; killed when the block ends before it does."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *TIDEMILL, "run", task, "--json", "--cwd", str(workspace), *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=dict(stack.environment), limit=_LINE_BYTES,
    )  # fmt: skip
    try:
        yield Task(process)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.communicate()


def call(command: str) -> list[Event]:
    """A turn that calls the shell."""
    return [{"type": "function_call", "name": "shell", "arguments": json.dumps({"command": command})}]


def says(text: str) -> list[Event]:
    """A turn that answers."""
    return [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]


def trajectory(path: Path, *turns: Sequence[Event]) -> str:
    """A file of forced turns; its path."""
    path.write_text(json.dumps(turns), encoding="utf-8")
    return str(path)


def has_reader(fifo: Path) -> bool:
    """Whether some process has ``fifo`` open for reading."""
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True
