"""`tidemill up`, `down` and `status`: the whole stack as local processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tidemill_common import lifeline, paths
from tidemill_common.errors import Reason, TidemillError
from tidemill_harness import stack_file
from tidemill_harness.stack_file import StackFile
from tidemill_harness.stack_plan import DEFAULT_MODEL, DEFAULT_PORT, StackOptions

if TYPE_CHECKING:
    from tidemill_harness.stack_status import StackStatus
    from tidemill_harness.supervisor import LocalStack

DOWN_SECONDS = 60.0
_POLL_SECONDS = 0.05
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SafetyMode(StrEnum):
    """When text leaves: at once and cut on a bad verdict, or after the verdict."""

    STREAM = "stream"
    HOLD = "hold"


class Dtype(StrEnum):
    """What the workers compute in."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


def register(app: typer.Typer) -> None:
    """Add the verbs to ``app``."""
    app.command("up")(up)
    app.command("down")(down)
    app.command("status")(status)


def up(
    model: Annotated[str, typer.Option(help="Name of `tidemill model list`, or a model directory's path.")] = DEFAULT_MODEL,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the API; a free one where it is taken.")] = DEFAULT_PORT,
    context_length: Annotated[int, typer.Option(min=0, help="Context in tokens; 0 is the model's own.")] = 0,
    decode: Annotated[int, typer.Option(min=1, max=16, help="Decode workers.")] = 1,
    prefill: Annotated[int, typer.Option(min=0, max=16, help="Prefill workers; with 0, decode workers prefill.")] = 1,
    safety_mode: Annotated[SafetyMode | None, typer.Option(help="stream cuts on a bad verdict, hold waits for it.")] = None,
    allow_forced_output: Annotated[bool, typer.Option(help="Let requests force their output, for replay and tests.")] = False,
    scripts: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="JSON of scripted model aliases; with --allow-forced-output."),
    ] = None,
    disaggregation_threshold: Annotated[
        int | None, typer.Option(min=0, help="Uncached tokens above which a prefill worker is used; 0 is never.")
    ] = None,
    dtype: Annotated[Dtype | None, typer.Option(help="What the workers compute in.")] = None,
    threads: Annotated[int, typer.Option(min=0, help="Threads of each worker; 0 shares out the processors.")] = 0,
) -> None:
    """Run the whole stack on this machine until Ctrl-C or `tidemill down`."""
    if scripts is not None and not allow_forced_output:
        raise typer.BadParameter("needs --allow-forced-output", param_hint="--scripts")
    options = StackOptions(
        model=model,
        port=port,
        context_length=context_length,
        decode=decode,
        prefill=prefill,
        safety_mode=safety_mode,
        allow_forced_output=allow_forced_output,
        scripts=scripts,
        disaggregation_threshold=disaggregation_threshold,
        dtype=dtype,
        threads=threads,
    )
    asyncio.run(_up(options))


async def _up(options: StackOptions) -> None:
    """Serve until a signal; one that comes during the start ends the start."""
    from tidemill_harness.supervisor import local_stack

    stopping = asyncio.Event()
    for number in _STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with contextlib.AsyncExitStack() as owned:
        running = local_stack(options, shared=True, report=lambda line: typer.echo(line, err=True))
        starting, stopped = asyncio.create_task(owned.enter_async_context(running)), asyncio.create_task(stopping.wait())
        with _spinner(f"starting {options.model}"):
            await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            typer.echo("stopped before it was ready", err=True)
            return
        typer.echo(_ready_line(await starting, options.port))
        await stopped
        typer.echo("stopping", err=True)


def _spinner(text: str) -> contextlib.AbstractContextManager[object]:
    console = Console(stderr=True)
    return console.status(text) if console.is_terminal else contextlib.nullcontext()


def _ready_line(stack: LocalStack, port: int) -> str:
    note = f" (port {port} is taken)" if stack.port_taken else ""
    return f"ready url={stack.url}{note} key={stack.api_key} key_file={paths.first_key_file()} model={stack.model}"


def down() -> None:
    """Stop the stack of `tidemill up`."""
    from tidemill_harness.supervisor import is_running

    stack = stack_file.read()
    if stack is None or not is_running():
        if stack is not None:
            lifeline.remove_owned(paths.stack_file(), stack.pid)
        typer.echo("No stack is running.")
        return
    os.kill(stack.pid, signal.SIGTERM)
    pause = threading.Event()
    for _ in range(int(DOWN_SECONDS / _POLL_SECONDS)):
        if not stack_file.alive(stack.pid) or not paths.stack_file().exists():
            typer.echo(f"Stopped the stack at {stack.url}.")
            return
        pause.wait(_POLL_SECONDS)
    raise TidemillError(Reason.DEADLINE_EXCEEDED, f"the stack (pid {stack.pid}) did not stop in {DOWN_SECONDS:.0f} s")


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the running stack: its processes, workers and counts. Exit code 1 when none runs, 2 when a part is not ready."""
    from tidemill_harness import stack_status

    stack = stack_file.read()
    if stack is None:
        typer.echo("{}" if as_json else "No stack is running; `tidemill up` starts one.")
        raise typer.Exit(1)
    found = asyncio.run(stack_status.gather(stack))
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=1))
    else:
        _print(stack, found)
    if not all(each.ready for each in found.services):
        raise typer.Exit(2)


def _print(stack: StackFile, found: StackStatus) -> None:
    from tidemill_harness import stack_status

    console = Console()
    typer.echo(f"{stack.url} serves {stack.model} (pid {stack.pid})\nkey in {stack.key_file}, logs in {paths.logs_dir()}")
    console.print(stack_status.services_table(found))
    if found.workers is not None:
        console.print(stack_status.workers_table(found.workers))
    if found.gateway is not None:
        counts = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in found.gateway.items())
        console.print(f"gateway: {counts}", highlight=False)
    for problem in found.problems:
        console.print(problem, style="red", highlight=False)
