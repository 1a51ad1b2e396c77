"""A session: everything that a task needs, put together and taken down again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

from tidemill_common import __version__
from tidemill_common.errors import Reason, TidemillError
from tidemill_harness import prompts, stack_file, trajectory, transcript
from tidemill_harness.agent import Agent, Observe
from tidemill_harness.approval import Approver, Ask
from tidemill_harness.choices import Choices
from tidemill_harness.client import ResponsesClient
from tidemill_harness.conversation import Conversation
from tidemill_harness.endpoint import Endpoint, ModelProfile, api_key_for, model_profile
from tidemill_harness.events import AgentEvent, Notice, TaskFinished
from tidemill_harness.frames import Request
from tidemill_harness.interrupts import Interrupt
from tidemill_harness.items import message
from tidemill_harness.sandbox import probe
from tidemill_harness.sandbox.policy import Mode, Policy, Sandbox
from tidemill_harness.scratch import scratch_folder
from tidemill_harness.stack_plan import DEFAULT_MODEL, StackOptions
from tidemill_harness.tools.edit_file import EditFile
from tidemill_harness.tools.shell import Shell
from tidemill_harness.tools.toolbox import Toolbox
from tidemill_harness.transcript import Transcript
from tidemill_harness.view import View

SMALL_MODEL = (
    "{model} plans poorly, so a task's first step asks it for a tool call. For a better model: "
    "`tidemill model add PATH`, then `tidemill up --model NAME`."
)
_OUTPUT_BYTES = (2000, 16_000)  # least and most of a command's output that the model sees


class Session:
    """One conversation, ready for tasks."""

    def __init__(self, agent: Agent, observe: Observe) -> None:
        self._agent = agent
        self._observe = observe

    async def ask(self, text: str) -> bool:
        """Work on a task and show how it ends; True when it was answered. A cancellation is shown and goes on."""
        started = time.monotonic()
        answer, error, incomplete = "", "Interrupted.", ""
        try:
            done = await self._agent.task([message("user", text)])
            answer, error, incomplete = done.text, "", done.incomplete
        except Interrupt as interrupt:
            error = str(interrupt)
        except TidemillError as failure:
            error = failure.sentence()
        finally:
            seconds = time.monotonic() - started
            self._observe(TaskFinished(answer, self._agent.step, self._agent.usage, seconds, error, incomplete))
        return not error


@contextlib.asynccontextmanager
async def open_session(choices: Choices, view: View, ask: Ask | None) -> AsyncIterator[Session]:
    """A session under ``choices``, shown by ``view``; ``ask`` puts a question to the user. Raises TidemillError."""
    workspace = choices.workspace.resolve()
    if workspace == Path(workspace.anchor) and choices.sandbox is not Mode.FULL_ACCESS:
        raise TidemillError(Reason.CONFIG, f"{workspace} is no workspace: the sandbox needs a folder below it; see --cwd")
    sandbox = probe.choose(choices.sandbox)
    turns = trajectory.load(choices.trajectory) if choices.trajectory else []
    async with contextlib.AsyncExitStack() as owned:
        endpoint = await owned.enter_async_context(_endpoint(choices, view))
        profile = await model_profile(endpoint, choices.model)
        session_id = transcript.new_id()
        facts = {"version": __version__, "url": endpoint.url, "model": profile.id, "workspace": str(workspace)}
        facts |= {"sandbox": str(choices.sandbox), "enforced_by": sandbox.name, "approval": str(choices.approval)}
        record = owned.enter_context(Transcript(session_id, facts))
        observe = _both(view, record)
        policy = Policy(choices.sandbox, workspace, owned.enter_context(scratch_folder()))
        toolbox = _toolbox(choices, policy, sandbox, profile, ask)
        start = message("developer", prompts.INSTRUCTIONS)
        record.items([start])
        # A model that plans poorly goes on making calls within a turn that it has not seen the outputs of.
        request = Request(profile.id, toolbox.specs, session_id, parallel=not profile.require_tool_first)
        client = ResponsesClient(endpoint, request, Conversation([start]), hops=choices.hops or choices.as_json)
        connection = await owned.enter_async_context(client)
        for text in _notices(choices, profile, sandbox, len(turns)):
            observe(Notice(text))
        yield Session(Agent(connection, toolbox, observe, choices.limits, profile.require_tool_first, turns), observe)


@contextlib.asynccontextmanager
async def _endpoint(choices: Choices, view: View) -> AsyncIterator[Endpoint]:
    """The gateway asked for, else the running local stack, else one that is started for this session."""
    if choices.url:
        endpoint = Endpoint.of(choices.url)
        yield Endpoint(endpoint.url, api_key_for(endpoint, choices.api_key))
    elif running := stack_file.read():
        endpoint = Endpoint.of(running.url)
        yield Endpoint(endpoint.url, api_key_for(endpoint, choices.api_key, Path(running.key_file)))
    else:
        # Imported here, since it needs what `--url` does without.
        from tidemill_harness.supervisor import local_stack

        view.starting("starting the local stack")
        wanted = StackOptions(choices.model or DEFAULT_MODEL, port=0, allow_forced_output=choices.trajectory is not None)
        async with local_stack(wanted) as stack:
            yield Endpoint.of(stack.url, stack.api_key)


def _toolbox(choices: Choices, policy: Policy, sandbox: Sandbox, profile: ModelProfile, ask: Ask | None) -> Toolbox:
    approver = Approver(choices.approval, ask)
    least, most = _OUTPUT_BYTES
    limit = max(least, min(most, profile.context_length // 2 or most))
    return Toolbox([Shell(sandbox, policy, approver, limit), EditFile(policy, approver)])


def _notices(choices: Choices, profile: ModelProfile, sandbox: Sandbox, turns: int) -> list[str]:
    name = "SmolLM2-135M" if profile.id == DEFAULT_MODEL else profile.id
    notices = [SMALL_MODEL.format(model=name)] if profile.require_tool_first else []
    if sandbox.limits:
        notices.append(f"Sandbox {sandbox.name}: {sandbox.limits}.")
    if choices.trajectory:
        notices.append(trajectory.NOTICE.format(turns=turns, path=choices.trajectory))
    return notices


def _both(view: View, record: Transcript) -> Observe:
    def observe(event: AgentEvent) -> None:
        record(event)
        view(event)

    return observe
