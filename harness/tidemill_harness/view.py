"""What the user sees of a task: a live view on a terminal, plain lines elsewhere, JSON lines for programs."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.status import Status
from rich.table import Table

from tidemill_harness.events import (
    AgentEvent,
    ItemDone,
    Notice,
    ReasoningDelta,
    Resent,
    StepFinished,
    StepStarted,
    TaskFinished,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnDone,
    Waiting,
)
from tidemill_harness.items import ToolCall, text_of
from tidemill_harness.plain import clean

OUTPUT_LINES = 12


class View(Protocol):
    """Shows events."""

    def __call__(self, event: AgentEvent) -> None:
        """Show ``event``."""
        ...

    def starting(self, what: str) -> None:
        """Show that something is waited for."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was; safe to call twice."""
        ...


def make_view(as_json: bool, hops: bool) -> View:
    """The view for this process's stdout."""
    if as_json:
        return JsonView(sys.stdout)
    if sys.stdout.isatty():
        return TerminalView(Console(), hops)
    return PlainView(sys.stdout, sys.stderr, hops)


def call_line(call: ToolCall) -> str:
    """A call in one line."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = call.arguments
    shown = arguments.get("command") or arguments.get("path") if isinstance(arguments, dict) else None
    text = shown if isinstance(shown, str) else json.dumps(arguments, ensure_ascii=False)
    return f"{call.name}: {clean(text)}"


def output_lines(output: str) -> list[str]:
    """The first lines of an output, and how many more there are."""
    lines = clean(output).splitlines()
    more = len(lines) - OUTPUT_LINES
    return lines if more <= 1 else [*lines[:OUTPUT_LINES], f"... {more} more lines"]


def step_line(event: StepFinished) -> str:
    """A turn's numbers in one line."""
    turn = event.turn
    ttft = "-" if turn.ttft is None else f"{turn.ttft * 1000:.0f} ms"
    tokens = f"input {turn.usage.input} tokens, cached {turn.usage.cached}, output {turn.usage.output}"
    cut = f", cut: {turn.incomplete}" if turn.incomplete else ""
    return f"step {event.step}: TTFT {ttft}, {tokens}{cut}"


def summary_line(event: TaskFinished) -> str:
    """A task's numbers in one line."""
    outcome = f"failed: {event.error}" if event.error else "answered"
    usage = event.usage
    if not event.steps:
        return outcome
    return (
        f"{outcome} ({event.steps} steps, {event.seconds:.1f} s; "
        f"input {usage.input} tokens, cached {usage.cached}, output {usage.output})"
    )


def notice_text(event: Notice | Resent | Waiting) -> str:
    """What happened, in one line."""
    match event:
        case Resent(why):
            return f"{why}: sending the whole conversation once"
        case Waiting(seconds, why):
            return f"the server is busy ({clean(why)}): trying again in {seconds:g} s"
        case Notice(text):
            return text


def hop_rows(turn: TurnDone) -> list[tuple[str, str, str, str, str]]:
    """Service, node, node type, milliseconds and process id of each hop."""
    keys = ("service", "node", "node_type", "milliseconds", "pid")
    rows = ([hop.get(key, "") for key in keys] for hop in turn.hops)
    return [
        (str(service), str(node), str(kind), f"{float(spent or 0):.1f}", str(pid)) for service, node, kind, spent, pid in rows
    ]


class JsonView:
    """One JSON object per event on one stream."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __call__(self, event: AgentEvent) -> None:
        """Write ``event``."""
        fields: dict[str, Any] = asdict(event)
        if isinstance(event, TurnDone):
            return  # StepFinished tells the same
        if isinstance(event, StepFinished):
            fields = {"step": event.step, **asdict(event.turn)}
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()
        self._out.write(json.dumps({"type": name, **fields}, ensure_ascii=False) + "\n")
        self._out.flush()

    def starting(self, what: str) -> None:
        """Nothing: programs read events."""

    def close(self) -> None:
        """Nothing to restore."""


class PlainView:
    """Progress as lines on ``err``; only the answer goes to ``out``, so that it can be piped."""

    def __init__(self, out: TextIO, err: TextIO, hops: bool = False) -> None:
        self._out = out
        self._err = err
        self._hops = hops

    def __call__(self, event: AgentEvent) -> None:
        """Write what ``event`` tells."""
        match event:
            case StepStarted(step, _, forced):
                if forced:
                    self._line(f"step {step}: output forced by a script")
            case ToolStarted(call):
                self._line(f"running {call_line(call)}")
            case ToolFinished(call, output, _):
                self._lines(output_lines(output))
            case StepFinished(_, turn):
                self._line(step_line(event))
                if self._hops:
                    self._lines(["  ".join(row) for row in hop_rows(turn)])
            case Notice() | Resent() | Waiting():
                self._line(notice_text(event))
            case TaskFinished(answer):
                self._line(summary_line(event))
                if answer:
                    self._out.write(clean(answer) + "\n")
                    self._out.flush()
            case _:
                pass

    def starting(self, what: str) -> None:
        """One line."""
        self._line(what)

    def close(self) -> None:
        """Nothing to restore."""

    def _lines(self, lines: list[str]) -> None:
        for line in lines:
            self._line(f"  {line}")

    def _line(self, text: str) -> None:
        self._err.write(text + "\n")
        self._err.flush()


class TerminalView:
    """Streams text as it comes; a spinner says what is waited for; each turn ends in a line of numbers."""

    def __init__(self, console: Console, hops: bool = False) -> None:
        self._console = console
        self._hops = hops
        self._status: Status | None = None
        self._mid_line = False
        self._running: list[ToolCall] = []

    def __call__(self, event: AgentEvent) -> None:
        """Show ``event``."""
        match event:
            case StepStarted(step, _, forced):
                self._wait(f"step {step}: thinking" + (" (output forced by a script)" if forced else ""))
            case TextDelta(text):
                self._stream(text, "")
            case ReasoningDelta(text):
                self._stream(text, "dim italic")
            case ItemDone(item):
                if text_of(item):
                    self._end_line()
            case ToolStarted(call):
                self._running.append(call)
                self._print(f"▸ {call_line(call)}", "bold cyan")
                self._wait_for_tools()
            case ToolFinished(call, output, seconds):
                self._running.remove(call)
                for line in output_lines(output):
                    self._print(f"  {line}", "dim")
                self._print(f"  {call.name}: {seconds:.1f} s", "dim")
                self._wait_for_tools()
            case StepFinished(_, turn):
                self._print(step_line(event), "dim")
                self._show_hops(turn)
                self._wait_for_tools()
            case Notice() | Resent() | Waiting():
                self._print(notice_text(event), "dim yellow")
            case TaskFinished(_, _, _, _, error):
                self.close()
                self._print(summary_line(event), "bold red" if error else "green")
            case _:
                pass

    def starting(self, what: str) -> None:
        """A spinner."""
        self._wait(what)

    def close(self) -> None:
        """Stop the spinner and end the line."""
        self._stop()
        self._end_line()

    def _wait(self, text: str) -> None:
        self._end_line()
        self._stop()
        self._status = self._console.status(text, spinner="dots")
        self._status.start()

    def _wait_for_tools(self) -> None:
        if self._running:
            self._wait("running " + ", ".join(call.name for call in self._running))
        else:
            self._stop()

    def _stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _stream(self, text: str, style: str) -> None:
        if shown := clean(text):
            self._stop()
            self._console.print(shown, style=style, end="", markup=False, highlight=False, soft_wrap=True)
            self._mid_line = not shown.endswith("\n")

    def _end_line(self) -> None:
        if self._mid_line:
            self._mid_line = False
            self._console.print()

    def _print(self, text: str, style: str) -> None:
        self._end_line()
        self._console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def _show_hops(self, turn: TurnDone) -> None:
        if not self._hops or not turn.hops:
            return
        table = Table("service", "node", "node type", "ms", "pid", box=None, style="dim")
        for row in hop_rows(turn):
            table.add_row(*row)
        self._console.print(table)
