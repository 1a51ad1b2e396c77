"""`tidemill run` against a running stack: forced trajectories, which finish, and the default model left to itself."""

from __future__ import annotations

import itertools
import json
import os
import signal
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.e2e.stack import SERVICES, Stack
from tests.e2e.task import call, has_reader, running, says, trajectory
from tests.support.waiting import until
from tidemill_common.digests import DEFAULT_BLOCK_SIZE
from tidemill_harness.tools.edit_file import EditFile
from tidemill_harness.tools.shell import Shell

pytestmark = [pytest.mark.stack, pytest.mark.model, pytest.mark.timeout(600)]

TASK = "List the files here and say what this is."
ANSWER = "A folder with a note about the tide."
WORDS = " ".join(f"word{n}" for n in range(200))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "tide.txt").write_text("The tide drives the mill.\n")
    return folder


@pytest.mark.requirement("task:finishes")
async def test_a_forced_trajectory_runs_its_tool_in_the_sandbox_and_answers(stack: Stack, workspace: Path) -> None:
    look = "ls; echo seen > made.txt; touch ../outside.txt"
    forced = trajectory(workspace.parent / "turns.json", call(look), says(ANSWER))
    done = stack.command("run", TASK, "--cwd", str(workspace), "--forced-trajectory", forced, "--hops")
    assert (done.returncode, done.stdout) == (0, f"{ANSWER}\n"), done.stderr
    assert "Scripted: the output of the first 2 model turns is forced" in done.stderr
    assert done.stderr.count("output forced by a script") == 2
    assert "  tide.txt\n" in done.stderr
    assert (workspace / "made.txt").read_text() == "seen\n"
    assert not (workspace.parent / "outside.txt").exists()
    assert all(service in done.stderr for service in SERVICES)


@pytest.mark.requirement("task:finishes")
async def test_a_second_task_on_the_same_stack_sends_only_what_is_new(stack: Stack, workspace: Path) -> None:
    forced = trajectory(workspace.parent / "turns.json", call("cat tide.txt"), call("wc tide.txt"), says(ANSWER))
    async with running(stack, workspace, TASK, "--forced-trajectory", forced) as task:
        assert await task.end() == 0
    assert task.of("task_finished")[0]["answer"] == ANSWER
    assert [step["forced"] for step in task.of("step_started")] == [True] * 3
    assert "The tide drives the mill." in task.of("tool_finished")[0]["output"]
    steps = [step["usage"] for step in task.of("step_finished")]
    for before, after in itertools.pairwise(steps):
        assert after["cached"] > before["input"] + before["output"] - DEFAULT_BLOCK_SIZE - 1


@pytest.mark.requirement("task:free-run")
async def test_the_default_model_left_to_itself_makes_a_valid_call_that_runs_and_ends_orderly(
    stack: Stack, workspace: Path
) -> None:
    async with running(stack, workspace, TASK, "--max-steps", "1") as task:
        code = await task.end()
    assert not task.of("step_started")[0]["forced"]
    assert task.of("step_started")[0]["tool_choice"] == "required"
    calls = [event["item"] for event in task.of("item_done") if event["item"]["type"] == "function_call"]
    schemas = {tool.spec["name"]: tool.spec["parameters"] for tool in (Shell, EditFile)}
    for each in calls:
        Draft202012Validator(schemas[each["name"]]).validate(json.loads(each["arguments"]))
    assert calls
    assert task.of("tool_finished")[0]["call"]["name"] == calls[0]["name"]
    assert task.of("tool_finished")[0]["output"]
    end = task.events[-1]
    assert end["type"] == "task_finished"
    assert (code, bool(end["error"])) in ((0, False), (1, True)), end


@pytest.mark.requirement("task:interrupt")
async def test_an_interrupt_while_a_tool_runs_ends_tool_and_task(stack: Stack, workspace: Path) -> None:
    os.mkfifo(workspace / "gate")
    forced = trajectory(workspace.parent / "turns.json", call("cat gate"), says(ANSWER))
    async with running(stack, workspace, TASK, "--forced-trajectory", forced) as task:
        await task.until("tool_started")
        await until(lambda: has_reader(workspace / "gate"))
        task.process.send_signal(signal.SIGINT)
        assert await task.end() == 130
    assert task.events[-1]["error"] == "Interrupted."
    await until(lambda: not has_reader(workspace / "gate"))


@pytest.mark.requirement("task:interrupt")
async def test_an_interrupt_in_mid_answer_ends_the_generation(stack: Stack, workspace: Path) -> None:
    forced = trajectory(workspace.parent / "turns.json", says(WORDS))
    async with running(stack, workspace, TASK, "--forced-trajectory", forced) as task:
        await task.until("text_delta")
        task.process.send_signal(signal.SIGINT)
        assert await task.end() == 130
    assert task.events[-1]["error"] == "Interrupted."
