"""Landlock with seccomp, for where no user namespace may be made (containers, hardened kernels).

Landlock (Linux 5.13, https://docs.kernel.org/userspace-api/landlock.html) only ever allows, so ``.git`` in a writable workspace
is protected by allowing each of the workspace's other entries instead of the workspace: a command then makes no new file at its
top.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tidemill_harness.sandbox import confine
from tidemill_harness.sandbox.policy import Policy

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/random", "/dev/urandom")


class Landlock:
    """Runs commands through ``confine``, which restricts itself and then becomes the command."""

    name = "landlock"
    limits = "in a git workspace, commands make no new file at its top (edit_file does); files outside stay readable"

    def wrap(self, policy: Policy, argv: Sequence[str]) -> list[str]:
        """The interpreter with confine.py, what may be written, then ``argv``."""
        writable = [str(path) for path in self._writable(policy)]
        return [sys.executable, "-I", "-S", str(Path(confine.__file__)), json.dumps(writable), *argv]

    def _writable(self, policy: Policy) -> list[Path]:
        paths = [policy.scratch, *(Path(device) for device in _DEVICES)]
        if policy.writable:
            paths += self._workspace(policy)
        return [path for path in paths if path.exists()]

    def _workspace(self, policy: Policy) -> list[Path]:
        if not policy.protected:
            return [policy.workspace]
        entries = sorted(policy.workspace.iterdir())
        return [path for path in entries if path not in policy.protected and not path.is_symlink()]

    def temporary(self, policy: Policy) -> Path:
        """The session's folder, which TMPDIR names; /tmp itself stays read-only."""
        return policy.scratch


def abi() -> int:
    """Version of Landlock that the kernel offers; 0 = none."""
    return confine.landlock_abi()
