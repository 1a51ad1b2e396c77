"""macOS's sandbox-exec. Untested: no macOS machine has run it yet. Written from the profiles that ship with macOS."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tidemill_harness.sandbox.policy import Policy

BINARY = Path("/usr/bin/sandbox-exec")
_BASE = """(version 1)
(allow default)
(deny network*)
(deny file-write*)
(allow file-write* (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty") (subpath (param "SCRATCH")))
"""


class Seatbelt:
    """Runs commands under sandbox-exec. In a profile the last rule that matches decides."""

    name = "sandbox-exec"
    limits = "untested on macOS"

    def wrap(self, policy: Policy, argv: Sequence[str]) -> list[str]:
        """sandbox-exec with a profile of ``policy``, then ``argv``."""
        parameters = {"SCRATCH": policy.scratch.resolve(), "WORKSPACE": policy.workspace}
        profile = _BASE
        if policy.writable:
            profile += '(allow file-write* (subpath (param "WORKSPACE")))\n'
        for number, path in enumerate(policy.protected):
            parameters[f"PROTECTED{number}"] = path
            profile += f'(deny file-write* (subpath (param "PROTECTED{number}")))\n'
        for number, path in enumerate(policy.hidden):
            parameters[f"HIDDEN{number}"] = path.resolve()
            profile += f'(deny file-read* file-write* (subpath (param "HIDDEN{number}")))\n'
        defines = [part for name, value in parameters.items() for part in ("-D", f"{name}={value}")]
        return [str(BINARY), "-p", profile, *defines, *argv]

    def temporary(self, policy: Policy) -> Path:
        """The session's folder."""
        return policy.scratch
