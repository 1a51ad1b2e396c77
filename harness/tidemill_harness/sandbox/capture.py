"""Keeps the beginning and the end of an output, within a bound."""

from __future__ import annotations


class Capture:
    """Collects bytes; beyond ``limit`` the middle goes.

    Attributes:
        limit: bytes kept, half from the beginning and half from the end.
        total: bytes that came.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        """Take what came next."""
        self.total += len(data)
        room = self.limit // 2 - len(self._head)
        self._head += data[: max(0, room)]
        self._tail += data[max(0, room) :]
        del self._tail[: max(0, len(self._tail) - (self.limit - self.limit // 2))]

    @property
    def dropped(self) -> int:
        """Bytes that went."""
        return self.total - len(self._head) - len(self._tail)

    def text(self) -> str:
        """What was kept, as text, with a line that says what went."""
        head, tail = (bytes(part).decode("utf-8", "replace") for part in (self._head, self._tail))
        note = f"\n[... {self.dropped} bytes of output left out here ...]\n" if self.dropped else ""
        return head + note + tail if note else bytes(self._head + self._tail).decode("utf-8", "replace")
