"""Runs one command under time, output and resource limits; nothing that it started outlives it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemill_harness.sandbox.capture import Capture

MARK = "TIDEMILL_CALL"
_CHUNK = 1 << 16
_DRAIN_SECONDS = 2.0
_KILL_ROUNDS = 20

# Soft and hard: no core files, files of 2 GiB, data of 8 GiB a process, 8192 processes, 4096 open files.
_ULIMITS = "for limit in '-c 0' '-f 2097152' '-d 8388608' '-u 8192' '-n 4096'; do ulimit $limit 2>/dev/null; done"


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended.

    Attributes:
        exit_code: its exit status, negative for a signal; None when it ran out of time.
        output: stdout and stderr together, the middle left out beyond the limit.
        seconds: the time limit that it had.
    """

    exit_code: int | None
    output: str
    seconds: float

    @property
    def timed_out(self) -> bool:
        """Whether the time limit ended it."""
        return self.exit_code is None


def shell() -> str:
    """Path of bash."""
    return shutil.which("bash") or "/bin/bash"


def limited(argv: Sequence[str]) -> list[str]:
    """``argv`` under resource limits; it replaces the shell that sets them."""
    return [shell(), "-c", f'{_ULIMITS}; exec "$@"', "tidemill", *argv]


async def run(
    argv: Sequence[str], environment: Mapping[str, str], directory: Path, seconds: float, output_limit: int
) -> Result:
    """Run ``argv`` in a session of its own. At the time limit, or when cancelled, its whole tree is killed.

    What a command leaves behind is killed too, so that no process of the model goes on unseen.
    """
    mark = secrets.token_hex(8)
    capture = Capture(output_limit)
    readable, writable = os.pipe()
    reader = asyncio.ensure_future(_read(readable, capture))
    try:
        process = await asyncio.create_subprocess_exec(
            *limited(argv),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writable,
            stderr=writable,
            env={**environment, MARK: mark},
            cwd=directory,
            start_new_session=True,
        )
    except BaseException:
        reader.cancel()
        raise
    finally:
        os.close(writable)
    try:
        async with asyncio.timeout(seconds):
            code: int | None = await process.wait()
    except TimeoutError:
        code = None
    finally:
        kill_tree(process.pid, mark)
        await asyncio.wait({reader}, timeout=_DRAIN_SECONDS)
        reader.cancel()
        await process.wait()
    return Result(code, capture.text(), seconds)


async def _read(readable: int, capture: Capture) -> None:
    """Read until every writer is gone. The pipe is not asyncio's own: with that, a process left behind delays ``wait()``."""
    stream = asyncio.StreamReader(limit=_CHUNK)
    protocol = asyncio.StreamReaderProtocol(stream)
    with os.fdopen(readable, "rb", buffering=0) as file:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, file)
        try:
            while data := await stream.read(_CHUNK):
                capture.add(data)
        finally:
            transport.close()


def kill_tree(group: int, mark: str) -> None:
    """Kill a process group, and whatever left it: on Linux those are found by the mark in their environment."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    for _ in range(_KILL_ROUNDS):
        found = _marked(f"{MARK}={mark}".encode())
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _marked(mark: bytes) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found
