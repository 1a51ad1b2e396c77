"""Description of the local stack while it runs: who runs it, where it answers, and its services."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tidemill_common import paths
from tidemill_common.errors import Reason, TidemillError


@dataclass(frozen=True, slots=True)
class ServiceEntry:
    """One child process.

    Attributes:
        service: tokenizer, safety, router, prefill, decode or gateway.
        name: its name in the stack; differs from ``service`` where there are several.
        pid: process id; 0 while it is down.
        address: host:port of gRPC.
        probe: host:port of /readyz and /metrics.
        log: path of its log.
        restarts: times it was started again.
        state: starting, ready, restarting or failed.
    """

    service: str
    name: str
    pid: int
    address: str
    probe: str
    log: str
    restarts: int
    state: str = "ready"


@dataclass(frozen=True, slots=True)
class StackFile:
    """A running stack.

    Attributes:
        pid: the supervisor.
        url: base URL of the gateway.
        key_file: file of the first API key.
        model: name of the model served.
        started: seconds since the epoch.
        services: its children.
    """

    pid: int
    url: str
    key_file: str
    model: str
    started: float
    services: tuple[ServiceEntry, ...]

    @property
    def ready(self) -> bool:
        """Whether every service was ready when the file was written."""
        return all(each.state == "ready" for each in self.services)

    def write(self, path: Path | None = None) -> None:
        """Write whole or not at all, readable by the owner only."""
        paths.write_private(path or paths.stack_file(), json.dumps(asdict(self), indent=1) + "\n")


def read(path: Path | None = None) -> StackFile | None:
    """The running stack; None when none runs. Raises TidemillError(CONFIG) for a malformed file."""
    path = path or paths.stack_file()
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        stack = StackFile(**{**data, "services": tuple(ServiceEntry(**each) for each in data["services"])})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise TidemillError(Reason.CONFIG, f"{str(path)!r} is malformed ({error}); remove it") from error
    return stack if alive(stack.pid) else None


def alive(pid: int) -> bool:
    """Whether the process ``pid`` runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
