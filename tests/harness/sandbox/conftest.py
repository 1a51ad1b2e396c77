from __future__ import annotations

from pathlib import Path

import pytest

from tidemill_harness.approval import ApprovalPolicy, Approver
from tidemill_harness.sandbox.bubblewrap import Bubblewrap, binaries
from tidemill_harness.sandbox.landlock import Landlock
from tidemill_harness.sandbox.policy import Mode, Policy, Sandbox
from tidemill_harness.tools.shell import Shell


def sandboxes() -> list[Sandbox]:
    return [*(Bubblewrap(binary) for binary in binaries()), Landlock()]


class Workplace:
    """A workspace with a repository, a folder outside it, and a shell under one sandbox."""

    def __init__(self, root: Path, sandbox: Sandbox) -> None:
        self.workspace, self.outside, self.scratch = root / "workspace", root / "outside", root / "scratch"
        for path in (self.workspace / ".git" / "hooks", self.workspace / "src", self.outside, self.scratch):
            path.mkdir(parents=True)
        (self.workspace / ".git" / "config").write_text("[core]\n")
        self.sandbox = sandbox

    def policy(self, mode: Mode) -> Policy:
        return Policy(mode, self.workspace, self.scratch)

    async def run(self, command: str, mode: Mode = Mode.WORKSPACE_WRITE, seconds: int = 20, limit: int = 4000) -> str:
        shell = Shell(self.sandbox, self.policy(mode), Approver(ApprovalPolicy.NEVER), limit)
        return await shell.run({"command": command, "timeout_seconds": seconds})


@pytest.fixture(params=sandboxes(), ids=lambda sandbox: f"{sandbox.name}-{getattr(sandbox, 'binary', '')}")
def workplace(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    sandbox: Sandbox = request.param
    return Workplace(tmp_path.resolve(), sandbox)
