"""The command line as a user runs it, against a scripted gateway."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support import fake_gateway as fake
from tests.support.fake_gateway import Act, FakeGateway
from tidemill_harness.__main__ import app

ROOT = Path(__file__).parents[2]
SOURCES = [str(ROOT / "harness"), str(ROOT / "services" / "common")]


class Cli:
    """Runs `tidemill` with folders of its own and the sources of the harness and the common library alone."""

    def __init__(self, root: Path) -> None:
        self.workspace, self.state = root / "workspace", root / "state" / "tidemill"
        self.workspace.mkdir()
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(SOURCES),
            "HOME": str(root),
            "XDG_STATE_HOME": str(root / "state"),
            "XDG_CONFIG_HOME": str(root / "config"),
            "TIDEMILL_API_KEY": "tm-key",
        }

    async def start(self, *arguments: str, code: Sequence[str] = ("-m", "tidemill_harness")) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            sys.executable, *code, *arguments, stdin=pipe, stdout=pipe, stderr=pipe, cwd=self.workspace, env=self.environment
        )

    async def run(self, *arguments: str, stdin: str = "") -> tuple[int | None, str, str]:
        process = await self.start(*arguments)
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 30)
        return process.returncode, out.decode(), err.decode()

    def transcript(self) -> list[dict[str, Any]]:
        (path,) = (self.state / "sessions").glob("*.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def one_call(command: str = "echo from the tool; touch made") -> FakeGateway:
    return FakeGateway([fake.calls("r1", fake.call_item("shell", {"command": command})), fake.says("All done.", "r2")])


@pytest.mark.requirement("harness:run")
async def test_a_task_runs_a_tool_and_prints_only_the_answer_on_stdout(cli: Cli) -> None:
    gateway = one_call()
    async with gateway.running():
        code, out, err = await cli.run("run", "do it", "--url", gateway.url)
    assert (code, out) == (0, "All done.\n")
    assert "running shell: echo from the tool" in err and "  from the tool" in err
    assert "step 1: TTFT" in err and "cached 4" in err
    assert "answered (2 steps" in err
    assert (cli.workspace / "made").exists()
    assert gateway.connections == 1
    assert gateway.requests[1]["previous_response_id"] == "r1"
    assert gateway.requests[1]["input"][0]["output"].startswith("from the tool")


@pytest.mark.requirement("harness:transcript")
async def test_the_transcript_has_every_item_in_order(cli: Cli) -> None:
    gateway = one_call()
    async with gateway.running():
        await cli.run("run", "do it", "--url", gateway.url)
    lines = cli.transcript()
    kinds = [line["item"].get("role") or line["item"]["type"] for line in lines if line["type"] == "item"]
    assert kinds == ["developer", "user", "function_call", "function_call_output", "assistant"]
    assert lines[0]["type"] == "session" and lines[-1]["type"] == "end"
    assert [line["response_id"] for line in lines if line["type"] == "turn"] == ["r1", "r2"]
    (path,) = (cli.state / "sessions").glob("*.jsonl")
    assert path.stat().st_mode & 0o777 == 0o600
    assert not list((cli.state / "tmp").iterdir())


async def test_json_prints_events_a_line_each(cli: Cli) -> None:
    gateway = one_call()
    async with gateway.running():
        code, out, err = await cli.run("run", "do it", "--url", gateway.url, "--json")
    events = [json.loads(line) for line in out.splitlines()]
    steps = [event for event in events if event["type"] == "step_finished"]
    assert code == 0 and err == ""
    assert [step["usage"] for step in steps] == [{"input": 10, "cached": 4, "output": 3}] * 2
    assert {"tool_started", "tool_finished", "text_delta", "item_done"} <= {event["type"] for event in events}
    assert events[-1]["type"] == "task_finished" and events[-1]["answer"] == "All done."


async def test_hops_are_shown_per_turn(cli: Cli) -> None:
    hops = [{"service": "router", "node": "n1", "node_type": "icelake", "milliseconds": 1.25, "pid": 7}]
    gateway = FakeGateway([[{"type": "response.metadata", "hops": hops}, *fake.says("Hi.", "r1")]])
    async with gateway.running():
        _, _, err = await cli.run("run", "do it", "--url", gateway.url, "--hops")
    assert "router  n1  icelake  1.2  7" in err


@pytest.mark.requirement("harness:exit-codes")
async def test_a_refused_task_exits_with_1_and_a_sentence(cli: Cli) -> None:
    gateway = FakeGateway([[fake.failed("invalid_prompt", "This asks for harm")]])
    async with gateway.running():
        code, out, err = await cli.run("run", "do it", "--url", gateway.url)
    assert (code, out) == (1, "")
    assert "failed: This asks for harm. The safety policy refused this content; change it." in err


@pytest.mark.requirement("harness:exit-codes")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["run"], "Missing argument"), (["run", " "], "say what to do"), (["chat", "--sandbox", "none"], "workspace-write")],
)
def test_wrong_usage_exits_with_2(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2 and message in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--url", "ftp://x"], "no address of a gateway"),
        (["--url", "http://["], "no address of a gateway"),
        (["--url", "http://127.0.0.1:1"], "no gateway answers"),
        (["--cwd", "/", "--url", "http://127.0.0.1:1"], "is no workspace"),
        (["--forced-trajectory", __file__, "--url", "http://127.0.0.1:1"], "can't be read"),
    ],
)
def test_what_can_not_run_says_why(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["run", "x", *arguments])
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr


async def test_a_model_that_is_not_served_is_named(cli: Cli) -> None:
    gateway = FakeGateway([])
    async with gateway.running():
        code, _, err = await cli.run("run", "x", "--url", gateway.url, "--model", "other")
    assert code == 1 and "model 'other' is not served" in err and "['fake']" in err


@pytest.mark.requirement("harness:exit-codes")
async def test_ctrl_c_ends_tool_and_turn_cleanly_with_130(cli: Cli) -> None:
    gateway = one_call("sleep 1000")
    async with gateway.running():
        process = await cli.start("run", "do it", "--url", gateway.url)
        assert process.stderr
        async with asyncio.timeout(30):
            while b"running shell" not in await process.stderr.readline():
                pass
        process.send_signal(signal.SIGINT)
        out, err = await asyncio.wait_for(process.communicate(), 20)
    assert (process.returncode, out) == (130, b"")
    assert b"Interrupted." in err and b"Traceback" not in err
    assert cli.transcript()[-1]["error"] == "Interrupted."
    assert not list((cli.state / "tmp").iterdir())


@pytest.mark.requirement("harness:require-tool-first")
async def test_a_small_model_is_announced_and_its_first_step_requires_a_tool(cli: Cli) -> None:
    gateway = one_call()
    gateway.model = {"id": "smollm2", "tidemill": {"require_tool_first": True, "context_length": 8192}}
    async with gateway.running():
        _, _, err = await cli.run("run", "do it", "--url", gateway.url)
    assert [request["tool_choice"] for request in gateway.requests] == ["required", "auto"]
    assert not any(request["parallel_tool_calls"] for request in gateway.requests)
    assert "SmolLM2-135M plans poorly" in err and "tidemill model add PATH" in err


@pytest.mark.requirement("harness:forced-trajectory")
async def test_a_forced_trajectory_is_sent_turn_by_turn_and_said(cli: Cli) -> None:
    turns = [[fake.call_item("shell", {"command": "true"})], [fake.text_item("done")]]
    (cli.workspace / "turns.json").write_text(json.dumps(turns))
    gateway = one_call()
    async with gateway.running():
        _, _, err = await cli.run("run", "x", "--url", gateway.url, "--forced-trajectory", "turns.json")
    assert [request["tidemill_forced_output"] for request in gateway.requests] == turns
    assert "Scripted: the output of the first 2 model turns is forced by turns.json" in err


@pytest.mark.requirement("harness:chat")
async def test_a_chat_keeps_one_connection_and_sends_only_the_new_message(cli: Cli) -> None:
    gateway = FakeGateway([fake.says("Hello.", "r1"), fake.says("Again.", "r2")])
    async with gateway.running():
        code, out, _ = await cli.run("chat", "--url", gateway.url, stdin="hi\n\nand again\n/quit\nnot this\n")
    assert (code, out) == (0, "Hello.\nAgain.\n")
    assert gateway.connections == 1
    assert len(gateway.requests[1]["input"]) == 1


async def test_ctrl_c_ends_a_turn_of_a_chat_but_not_the_chat(cli: Cli) -> None:
    gateway = FakeGateway([[fake.delta("x"), Act.HANG], fake.says("Again.", "r2")])
    async with gateway.running():
        process = await cli.start("chat", "--url", gateway.url)
        assert process.stdin
        process.stdin.write(b"hi\n")
        await asyncio.wait_for(gateway.hung.wait(), 20)
        process.send_signal(signal.SIGINT)
        out, _ = await asyncio.wait_for(process.communicate(b"go on\n"), 20)
    assert (process.returncode, out) == (0, b"Again.\n")
    assert [item["role"] for item in gateway.requests[1]["input"]] == ["developer", "user", "user"]


async def test_without_a_terminal_nobody_is_asked(cli: Cli) -> None:
    gateway = one_call("touch /etc/tidemill-x")
    async with gateway.running():
        code, _, err = await cli.run("run", "do it", "--url", gateway.url, stdin="y\ny\n")
    assert code == 0 and "Allow it?" not in err
    assert "(sandbox: workspace-write" in gateway.requests[1]["input"][0]["output"]


@pytest.mark.requirement("harness:light")
async def test_a_task_against_a_url_imports_only_the_harness_and_the_common_library(cli: Cli) -> None:
    script = """
import runpy, sys
sys.argv[0] = "tidemill"
try:
    runpy.run_module("tidemill_harness", run_name="__main__", alter_sys=True)
finally:
    heavy = {"grpc", "torch", "google.protobuf", "numpy", "transformers", "starlette", "prometheus_client", "tidemill"}
    print("heavy:", sorted(heavy & set(sys.modules)))
"""
    gateway = one_call()
    async with gateway.running():
        process = await cli.start("run", "do it", "--url", gateway.url, code=("-c", script))
        out, err = await asyncio.wait_for(process.communicate(), 30)
    assert out.decode() == "All done.\nheavy: []\n", err.decode()
