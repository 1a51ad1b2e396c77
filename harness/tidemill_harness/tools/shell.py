"""The shell tool: a bash command in the workspace, inside the sandbox."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from tidemill_harness.approval import Approver
from tidemill_harness.items import Item
from tidemill_harness.sandbox import process
from tidemill_harness.sandbox.policy import Mode, Policy, Sandbox, Unconfined, environment
from tidemill_harness.sandbox.process import Result
from tidemill_harness.tools.toolbox import ToolError

DEFAULT_SECONDS, MAX_SECONDS = 60, 600
_DENIALS = (
    "Read-only file system",
    "Permission denied",
    "Operation not permitted",
    "Network is unreachable",
    "Could not resolve host",
    "Temporary failure in name resolution",
    "Name or service not known",
)


class Arguments(BaseModel):
    """Arguments of a call."""

    model_config = ConfigDict(extra="forbid")

    command: str = Field(min_length=1)
    timeout_seconds: int = Field(DEFAULT_SECONDS, ge=1, le=MAX_SECONDS)


class Shell:
    """Runs commands. They may run beside each other: a model that asks for two at once has not seen either's output."""

    parallel_safe = True
    spec: ClassVar[Item] = {
        "type": "function",
        "name": "shell",
        "description": "Run a bash command in the workspace.",
        "parameters": {
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "such as: ls -la"},
                "timeout_seconds": {"type": "integer", "minimum": 1, "maximum": MAX_SECONDS},
            },
            "required": ["command"],
            "additionalProperties": False,
        },
        "strict": False,
    }

    def __init__(self, sandbox: Sandbox, policy: Policy, approver: Approver, output_limit: int) -> None:
        self._sandbox = sandbox
        self._policy = policy
        self._approver = approver
        self._output_limit = output_limit

    async def run(self, arguments: dict[str, Any]) -> str:
        """Output, and the exit code of a failure. What the sandbox stopped may run again without it, if the user says so."""
        wanted = Arguments.model_validate(arguments)
        if "\0" in wanted.command:
            raise ToolError("the command has a NUL character")
        result = await self._run(self._sandbox, self._policy.mode, wanted)
        if self._policy.mode is Mode.FULL_ACCESS or not denied(result):
            return report(result)
        why = f"The sandbox ({self._policy.mode}, no network) stopped this command; it can run again without it."
        if await self._approver.allow(wanted.command, why):
            return report(await self._run(Unconfined(), Mode.FULL_ACCESS, wanted))
        where = " outside the workspace" if self._policy.writable else ""
        return f"{report(result)}\n(sandbox: {self._policy.mode}, no network, no writes{where})"

    async def _run(self, sandbox: Sandbox, mode: Mode, wanted: Arguments) -> Result:
        argv = sandbox.wrap(self._policy, [process.shell(), "-c", wanted.command])
        variables = environment(mode, sandbox.temporary(self._policy))
        return await process.run(argv, variables, self._policy.workspace, wanted.timeout_seconds, self._output_limit)


def denied(result: Result) -> bool:
    """Whether a failure looks like the sandbox's doing."""
    return result.exit_code not in (0, None) and any(denial in result.output for denial in _DENIALS)


def report(result: Result) -> str:
    """A result as the model reads it: the bare output of a success, since small models repeat whatever stands before it."""
    output = result.output.rstrip("\n")
    if result.exit_code == 0:
        return output or "(no output)"
    end = f"timed out after {result.seconds:g} s, killed" if result.timed_out else f"exit code {result.exit_code}"
    return f"{end}\n{output}" if output else f"{end}, no output"
