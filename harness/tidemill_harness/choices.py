"""What a user chooses of a session."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tidemill_harness.approval import ApprovalPolicy
from tidemill_harness.limits import Limits
from tidemill_harness.sandbox.policy import Mode


@dataclass(frozen=True, slots=True)
class Choices:
    """What a user chooses of a session.

    Attributes:
        workspace: folder that the model works in.
        url: gateway; empty takes this machine's running stack, or starts one.
        model: alias; empty takes what is served.
        api_key: key; empty takes TIDEMILL_API_KEY, or this machine's first key where the gateway is local.
        sandbox: what commands may do.
        approval: when the user is asked for more.
        limits: bounds of each task.
        as_json: events as JSON lines instead of a view for people.
        hops: what each service spent on each turn.
        trajectory: file of outputs to force, one per turn.
    """

    workspace: Path
    url: str = ""
    model: str = ""
    api_key: str = ""
    sandbox: Mode = Mode.WORKSPACE_WRITE
    approval: ApprovalPolicy = ApprovalPolicy.ON_REQUEST
    limits: Limits = field(default_factory=Limits)
    as_json: bool = False
    hops: bool = False
    trajectory: Path | None = None
