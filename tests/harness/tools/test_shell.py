from __future__ import annotations

from pathlib import Path

import pytest

from tidemill_harness.approval import ApprovalPolicy, Approver
from tidemill_harness.sandbox import probe
from tidemill_harness.sandbox.policy import Mode, Policy
from tidemill_harness.tools.shell import Shell


class Person:
    """Gives scripted replies and keeps the questions."""

    def __init__(self, *replies: str | None) -> None:
        self.replies = list(replies)
        self.questions: list[str] = []

    async def ask(self, question: str) -> str | None:
        self.questions.append(question)
        return self.replies.pop(0)


def shell_of(root: Path, person: Person | None, mode: Mode = Mode.WORKSPACE_WRITE, policy: str = "on-request") -> Shell:
    for name in ("workspace", "scratch"):
        (root / name).mkdir(exist_ok=True)
    approver = Approver(ApprovalPolicy(policy), person.ask if person else None)
    return Shell(probe.choose(mode), Policy(mode, root / "workspace", root / "scratch"), approver, 4000)


@pytest.mark.requirement("approval:on-request")
async def test_a_command_that_the_sandbox_stopped_runs_again_when_the_user_says_so(tmp_path: Path) -> None:
    person = Person("y")
    target = Path.home() / f"tidemill-test-{tmp_path.name}"
    try:
        output = await shell_of(tmp_path, person).run({"command": f"echo x > {target} && echo written"})
        assert output == "written"
        assert target.exists()
    finally:
        target.unlink(missing_ok=True)
    assert f"echo x > {target}" in person.questions[0]


async def test_a_no_leaves_the_result_and_tells_the_model_why(tmp_path: Path) -> None:
    person = Person("what?", "n")
    output = await shell_of(tmp_path, person).run({"command": "touch /etc/tidemill-x"})
    assert output.startswith("exit code 1") and "(sandbox: workspace-write" in output
    assert len(person.questions) == 2
    assert not Path("/etc/tidemill-x").exists()


async def test_always_holds_for_the_same_command_only(tmp_path: Path) -> None:
    person = Person("a", None)
    shell = shell_of(tmp_path, person)
    refused = "echo Permission denied; exit 7"
    for _ in range(3):
        await shell.run({"command": refused})
    await shell.run({"command": refused + " "})
    assert len(person.questions) == 2


@pytest.mark.requirement("approval:never")
async def test_never_asks_nobody(tmp_path: Path) -> None:
    person = Person()
    await shell_of(tmp_path, person, policy="never").run({"command": "touch /etc/tidemill-x"})
    assert not person.questions


async def test_a_failure_that_is_not_the_sandboxes_doing_asks_nobody(tmp_path: Path) -> None:
    person = Person()
    assert await shell_of(tmp_path, person).run({"command": "ls nowhere; exit 5"}) != ""
    assert not person.questions


async def test_full_access_runs_without_a_sandbox(tmp_path: Path) -> None:
    output = await shell_of(tmp_path, None, Mode.FULL_ACCESS).run({"command": f"echo x > {tmp_path}/outside; exit 3"})
    assert output == "exit code 3, no output"
    assert (tmp_path / "outside").exists()
