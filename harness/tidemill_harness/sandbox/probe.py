"""Which sandbox works on this machine: each is tried with a command that must not be able to write outside."""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tidemill_common.errors import Reason, TidemillError
from tidemill_harness.sandbox import landlock, seatbelt
from tidemill_harness.sandbox.bubblewrap import Bubblewrap, binaries
from tidemill_harness.sandbox.landlock import Landlock
from tidemill_harness.sandbox.policy import Mode, Policy, Sandbox, Unconfined, environment
from tidemill_harness.sandbox.process import shell
from tidemill_harness.sandbox.seatbelt import Seatbelt

PROBE_SECONDS = 10.0
ADVICE = (
    "No sandbox works here, so the model's commands are not run. On Debian `apt-get install bubblewrap` brings one, if "
    "unprivileged user namespaces are allowed; a kernel from 5.13 with Landlock does as well; `tidemill doctor` tells more. "
    "On a machine that may be broken, `--sandbox full-access` runs commands without one."
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What trying one sandbox showed.

    Attributes:
        sandbox: the one tried.
        works: whether it ran a command and kept it in.
        detail: where it is, or why it does not work.
    """

    sandbox: Sandbox
    works: bool
    detail: str


def findings() -> list[Finding]:
    """Every candidate of this system, best first, each tried."""
    return [_try(sandbox, where) for sandbox, where in _candidates()]


@functools.cache
def best() -> Sandbox | None:
    """The first candidate that works, or None; tried once per process."""
    tried = (_try(sandbox, where) for sandbox, where in _candidates())
    return next((finding.sandbox for finding in tried if finding.works), None)


def choose(mode: Mode) -> Sandbox:
    """The sandbox for ``mode``. Raises TidemillError(CONFIG) with advice when there is none."""
    if mode is Mode.FULL_ACCESS:
        return Unconfined()
    found = best()
    if found is None:
        raise TidemillError(Reason.CONFIG, ADVICE)
    return found


def _candidates() -> Iterable[tuple[Sandbox, str]]:
    if sys.platform == "darwin":
        yield Seatbelt(), str(seatbelt.BINARY)
    elif sys.platform == "linux":
        for binary in binaries():
            yield Bubblewrap(binary), str(binary)
        yield Landlock(), f"ABI {landlock.abi()} of this kernel"


def _try(sandbox: Sandbox, where: str) -> Finding:
    with tempfile.TemporaryDirectory(prefix="tidemill-probe-") as folder:
        workspace, scratch, outside = (Path(folder).resolve() / name for name in ("workspace", "scratch", "outside"))
        for path in (workspace, scratch, outside):
            path.mkdir()
        policy = Policy(Mode.WORKSPACE_WRITE, workspace, scratch)
        script = f"echo > {workspace}/in && (echo > {outside}/out) 2>/dev/null; test -e {workspace}/in"
        problem = _run(sandbox.wrap(policy, [shell(), "-c", script]), policy, sandbox)
        if not problem and not (workspace / "in").exists():
            problem = "a command can't write in the workspace"
        if not problem and (outside / "out").exists():
            problem = "a command could write outside the workspace"
    return Finding(sandbox, not problem, f"{where}: {problem}" if problem else where)


def _run(argv: list[str], policy: Policy, sandbox: Sandbox) -> str:
    """Why ``argv`` failed, or nothing."""
    variables = environment(policy.mode, sandbox.temporary(policy))
    try:
        done = subprocess.run(
            argv,
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=variables,
            cwd=policy.workspace,
            timeout=PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
