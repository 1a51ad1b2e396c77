from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness.tools.test_shell import shell_of
from tidemill_harness.items import ToolCall
from tidemill_harness.tools.edit_file import EditFile
from tidemill_harness.tools.shell import Shell
from tidemill_harness.tools.toolbox import Toolbox


@pytest.fixture
def toolbox(tmp_path: Path) -> Toolbox:
    return Toolbox([shell_of(tmp_path, None)])


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("rm", "{}", "no tool 'rm'; there are shell"),
        ("shell", "{", "no JSON"),
        ("shell", "[]", "no JSON object"),
        ("shell", "{}", "command: Field required"),
        ("shell", '{"command": ""}', "command: "),
        ("shell", '{"command": "ls", "timeout_seconds": 100000}', "timeout_seconds: "),
        ("shell", '{"command": "ls", "cwd": "/"}', "cwd: "),
        ("shell", '{"command": "\\ud800"}', "surrogate"),
        ("shell", '{"command": "a\\u0000b"}', "NUL"),
    ],
)
async def test_a_malformed_call_is_told_to_the_model(toolbox: Toolbox, name: str, arguments: str, message: str) -> None:
    output = await toolbox.run(ToolCall("c", name, arguments))
    assert output.startswith("error: ") and message in output


async def test_a_call_runs(toolbox: Toolbox) -> None:
    assert await toolbox.run(ToolCall("c", "shell", '{"command": "echo hi"}')) == "hi"


def test_specs_are_short_constant_and_closed() -> None:
    specs: list[dict[str, Any]] = [Shell.spec, EditFile.spec]
    assert len(json.dumps(specs)) < 1000
    for spec in specs:
        assert spec["parameters"]["additionalProperties"] is False
        assert set(spec["parameters"]["required"]) <= set(spec["parameters"]["properties"])
