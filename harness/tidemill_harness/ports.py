"""Ports that stay reserved while their process is down: held by a bound socket that does not listen.

Servers bind with SO_REUSEADDR, which lets them bind beside a holder that has it too and does not listen. So nobody is given the
port between the choice and the start, or while a dead child waits to be started again.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from typing import Self

from tidemill_common.errors import Reason, TidemillError


class HeldPorts:
    """Reserved ports of ``host``."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def take(self, names: Iterable[str]) -> dict[str, int]:
        """A free port for each name."""
        return {name: self._hold(0) for name in names}

    def prefer(self, port: int) -> tuple[int, bool]:
        """``port`` if it is free, else a free one, and whether it is the one asked for.

        Raises TidemillError(CONFIG) when the port may not be used at all.
        """
        try:
            return self._hold(port), True
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise TidemillError(Reason.CONFIG, f"port {port} can't be used: {error.strerror}", "port") from error
        return self._hold(0), False

    def close(self) -> None:
        """Give all ports back."""
        for each in self._sockets:
            each.close()
        self._sockets.clear()

    def _hold(self, port: int) -> int:
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind((self.host, port))
        except OSError:
            holder.close()
            raise
        self._sockets.append(holder)
        return int(holder.getsockname()[1])
