"""Lines of standard input, read beside the event loop, so that a waiting prompt keeps the connection alive."""

from __future__ import annotations

import asyncio
import os
import sys

_CHUNK = 1 << 16


class Lines:
    """Reads whole lines from a descriptor.

    Attributes:
        interactive: whether a person types them.
    """

    def __init__(self, descriptor: int = 0) -> None:
        self.interactive = os.isatty(descriptor) and sys.stderr.isatty()
        self._descriptor = descriptor
        self._buffer = b""
        self._ended = False

    async def read(self, prompt: str = "") -> str | None:
        """The next line without its end; None at the end of input. ``prompt`` shows only to a person."""
        if self.interactive and prompt:
            sys.stderr.write(prompt)
            sys.stderr.flush()
        while b"\n" not in self._buffer and not self._ended:
            await self._readable()
            data = os.read(self._descriptor, _CHUNK)
            self._buffer += data
            self._ended = not data
        line, newline, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r") if line or newline else None

    async def _readable(self) -> None:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        try:
            loop.add_reader(self._descriptor, ready.set)
        except PermissionError:
            return  # a regular file, which never blocks
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._descriptor)
