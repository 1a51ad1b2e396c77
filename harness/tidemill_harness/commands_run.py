"""`tidemill run` and `tidemill chat`: agent tasks against a gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidemill_harness.approval import ApprovalPolicy
from tidemill_harness.choices import Choices
from tidemill_harness.limits import Limits
from tidemill_harness.sandbox.policy import Mode

Url = Annotated[str, typer.Option(envvar="TIDEMILL_URL", help="Gateway; without it, this machine's stack, started if need be.")]
Model = Annotated[str, typer.Option(help="Model alias; by default what is served.")]
ApiKey = Annotated[str, typer.Option(envvar="TIDEMILL_API_KEY", show_envvar=True, help="Key; on this machine the first key.")]
Sandbox = Annotated[Mode, typer.Option(help="What commands may do. full-access runs them without a sandbox: dangerous.")]
Approval = Annotated[
    ApprovalPolicy, typer.Option(help="on-request asks when a command needs more than the sandbox gives; never does not.")
]
MaxSteps = Annotated[int, typer.Option(min=0, help="Model turns with tools before the model has to answer; 0 = no limit.")]
Cwd = Annotated[Path, typer.Option(exists=True, file_okay=False, help="Workspace: the folder that the model works in.")]
Json = Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")]
ShowHops = Annotated[bool, typer.Option("--hops", help="Show what each service spent on each turn.")]
Timeout = Annotated[float, typer.Option(min=0, help="Seconds that a task may take; 0 = no limit.")]
Trajectory = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, help="JSON list of turns, each a list of output items: forced, not sampled."),
]


def register(app: typer.Typer) -> None:
    """Add the verbs to ``app``."""
    app.command("run")(run)
    app.command("chat")(chat)


def run(
    task: Annotated[str, typer.Argument(help="What to do.", show_default=False)],
    url: Url = "",
    model: Model = "",
    api_key: ApiKey = "",
    sandbox: Sandbox = Mode.WORKSPACE_WRITE,
    approval: Approval = ApprovalPolicy.ON_REQUEST,
    max_steps: MaxSteps = 20,
    cwd: Cwd = Path(),
    as_json: Json = False,
    hops: ShowHops = False,
    timeout: Timeout = 0,
    forced_trajectory: Trajectory = None,
) -> None:
    """Let the model work on a task. Exit code 0 when it was answered, 1 when it failed, 130 when interrupted."""
    if not task.strip():
        raise typer.BadParameter("say what to do", param_hint="TASK")
    limits = Limits(max_steps, timeout)
    _end(Choices(cwd, url, model, api_key, sandbox, approval, limits, as_json, hops, forced_trajectory), task)


def chat(
    url: Url = "",
    model: Model = "",
    api_key: ApiKey = "",
    sandbox: Sandbox = Mode.WORKSPACE_WRITE,
    approval: Approval = ApprovalPolicy.ON_REQUEST,
    max_steps: MaxSteps = 20,
    cwd: Cwd = Path(),
    as_json: Json = False,
    hops: ShowHops = False,
    timeout: Timeout = 0,
) -> None:
    """Talk with the model in one connection, a line a message. Ctrl-C ends a turn, Ctrl-D or /quit the chat."""
    limits = Limits(max_steps, timeout)
    _end(Choices(cwd, url, model, api_key, sandbox, approval, limits, as_json, hops), None)


def _end(choices: Choices, task: str | None) -> None:
    """Work on ``task``, or chat, and leave with the exit code."""
    # Imported here, so that the other verbs start without it.
    from tidemill_harness import work

    raise typer.Exit(work.run(choices, task))
