"""What a command may do, whoever enforces it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from tidemill_common import paths


class Mode(StrEnum):
    """How much a command may change."""

    READ_ONLY = "read-only"
    WORKSPACE_WRITE = "workspace-write"
    FULL_ACCESS = "full-access"


@dataclass(frozen=True, slots=True)
class Policy:
    """What one session's commands may do. No mode but full access reaches the network.

    Attributes:
        mode: how much they may change.
        workspace: absolute path, resolved.
        scratch: the session's private temporary folder.
    """

    mode: Mode
    workspace: Path
    scratch: Path

    @property
    def writable(self) -> bool:
        """Whether commands may write in the workspace."""
        return self.mode is not Mode.READ_ONLY

    @property
    def protected(self) -> list[Path]:
        """What stays read-only in a writable workspace: the repository's own folder, whose hooks run outside the sandbox."""
        return [path for path in (self.workspace / ".git",) if path.exists() and not path.is_symlink()]

    @property
    def hidden(self) -> list[Path]:
        """Folders that commands must not see: sockets of daemons that act for the user, and Tidemill's keys."""
        home = Path.home()
        wanted = [Path("/run"), home / ".docker/run", home / ".docker/desktop", paths.config_dir()]
        return [path for path in wanted if path.is_dir() and not path.is_symlink()]


class Sandbox(Protocol):
    """Enforces a policy.

    Attributes:
        name: what it is called.
        limits: what it can't do, in one clause; empty if nothing.
    """

    name: str
    limits: str

    def wrap(self, policy: Policy, argv: Sequence[str]) -> list[str]:
        """The command line that runs ``argv`` under ``policy``."""
        ...

    def temporary(self, policy: Policy) -> Path:
        """Where a command finds its private temporary folder."""
        ...


class Unconfined:
    """Full access: no sandbox."""

    name = "none"
    limits = "commands run with all of your rights"

    def wrap(self, policy: Policy, argv: Sequence[str]) -> list[str]:
        """``argv`` as it is."""
        return list(argv)

    def temporary(self, policy: Policy) -> Path:
        """The session's folder."""
        return policy.scratch


_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
_ALLOWED = frozenset(
    {"HOME", "PATH", "LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM", "USER", "LOGNAME", "SHELL", "EDITOR", "VIRTUAL_ENV"}
    | {"CONDA_PREFIX", "PYTHONPATH", "NODE_PATH", "NVM_DIR", "GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME", "JAVA_HOME"}
)


def environment(mode: Mode, temporary: Path, source: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that a command gets: an allow-list (everything in full access), never one whose name tells of a secret."""
    variables = os.environ if source is None else source
    kept = {
        name: value
        for name, value in variables.items()
        if (mode is Mode.FULL_ACCESS or name in _ALLOWED or name.startswith("LC_")) and not _SECRET.search(name)
    }
    return kept | {"TMPDIR": str(temporary), "GIT_PAGER": "cat", "PAGER": "cat"}
