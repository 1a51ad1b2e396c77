from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tidemill_harness.stdin import Lines


async def test_lines_of_a_pipe_come_whole_while_the_loop_runs() -> None:
    readable, writable = os.pipe()
    try:
        lines = Lines(readable)
        os.write(writable, b"one\r\ntw")
        assert await lines.read() == "one"
        waiting = asyncio.ensure_future(lines.read())
        await asyncio.sleep(0)
        assert not waiting.done()
        os.write(writable, b"o\nlast")
        assert await waiting == "two"
        os.close(writable)
        assert await lines.read() == "last"
        assert await lines.read() is None
    finally:
        os.close(readable)


async def test_a_regular_file_is_read_as_well(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a\n\nb\n")
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        lines = Lines(descriptor)
        assert [await lines.read() for _ in range(4)] == ["a", "", "b", None]
    finally:
        os.close(descriptor)
