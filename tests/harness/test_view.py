from __future__ import annotations

import io

from rich.console import Console

from tests.support.fake_gateway import text_item
from tidemill_harness.events import (
    ItemDone,
    Notice,
    StepFinished,
    StepStarted,
    TaskFinished,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnDone,
    Usage,
    Waiting,
)
from tidemill_harness.items import ToolCall
from tidemill_harness.plain import clean
from tidemill_harness.view import TerminalView, call_line, output_lines, step_line

CALL = ToolCall("c", "shell", '{"command": "ls"}')
TURN = TurnDone("r", Usage(100, 64, 7), 0.1234, 0.5, hops=({"service": "router", "milliseconds": 1.25},))


def shown(hops: bool = False) -> str:
    out = io.StringIO()
    view = TerminalView(Console(file=out, force_terminal=True, width=100, color_system=None), hops)
    for event in (
        Notice("a notice"),
        StepStarted(1, "auto", True),
        ToolStarted(CALL),
        StepFinished(1, TURN),
        ToolFinished(CALL, "exit code 0\nfile", 0.25),
        StepStarted(2, "auto"),
        Waiting(2, "full"),
        TextDelta("All "),
        TextDelta("done."),
        ItemDone(text_item("All done.")),
        StepFinished(2, TURN),
        TaskFinished("All done.", 2, Usage(200, 128, 14), 1.5),
    ):
        view(event)
    view.close()
    return out.getvalue()


def test_a_terminal_shows_calls_text_numbers_and_the_end() -> None:
    text = shown()
    for part in (
        "a notice",
        "▸ shell: ls",
        "  file",
        "All done.\n",
        "step 2: TTFT 123 ms",
        "cached 64",
        "answered (2 steps, 1.5 s",
    ):
        assert part in text
    assert "output forced by a script" in text and "trying again in 2 s" in text


def test_a_terminal_shows_hops_when_asked() -> None:
    assert "router" in shown(hops=True) and "router" not in shown()


def test_neither_model_nor_tool_drives_the_terminal() -> None:
    assert clean("a\x1b[2Jb\x07\x9bc\r\nd\te") == "a[2Jbc\nd\te"
    assert "\x1b" not in call_line(ToolCall("c", "shell", '{"command": "echo \\u001b[31m"}'))


def test_a_long_output_is_shown_in_part() -> None:
    lines = output_lines("\n".join(str(number) for number in range(100)))
    assert len(lines) == 13 and lines[-1] == "... 88 more lines"


def test_a_malformed_call_and_a_turn_without_tokens_still_show() -> None:
    assert call_line(ToolCall("c", "shell", "{")) == 'shell: "{"'
    assert "TTFT -" in step_line(StepFinished(1, TurnDone("r", Usage(), None, 1.0)))
