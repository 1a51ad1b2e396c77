"""`tidemill model`: add, list and remove models."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from tidemill_common.errors import Reason, TidemillError

app = typer.Typer(help="Models: the default one, any Hugging Face directory, or a GGUF file.", no_args_is_help=True)


@app.command("add")
def add(
    source: Annotated[
        str, typer.Argument(help="smollm2, the path of a Hugging Face directory or a GGUF file, or ORG/NAME of the hub.")
    ],
    name: Annotated[str | None, typer.Option(help="Name in the store; by default that of the source.")] = None,
) -> None:
    """Add a model; a second call is a no-op."""
    from tidemill_engine.model_store import ModelStore

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("Looking", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total or None)

        model, new = ModelStore().add(source, name, show)
    verb = "Added" if new else "Already here:"
    facts = f", {decimal(model.size)}, context {model.profile.context_length}" if model.profile else ""
    typer.echo(f"{verb} {model.name} ({model.directory}{facts})")
    if new and model.profile and model.profile.require_tool_first:
        typer.echo(
            f"{model.name} is small: it answers, but plans poorly, so the harness asks it for a tool call on a task's\n"
            "first step. Bring a better model with `tidemill model add PATH` and `tidemill up --model NAME`."
        )


@app.command("list")
def list_models() -> None:
    """List the models that are here."""
    from tidemill_engine.model_store import ModelStore

    models = ModelStore().list()
    if not models:
        typer.echo("No model yet; `tidemill model add smollm2` brings the default one.")
        return
    table = Table("name", "family", "context", "size", "source", box=None, pad_edge=False)
    for model in models:
        profile = model.profile
        row = (profile.family, str(profile.context_length), profile.source) if profile else ("unreadable", "-", "-")
        table.add_row(*map(escape, (model.name, row[0], row[1], decimal(model.size), row[2])))
    Console().print(table)


@app.command("rm")
def remove(name: Annotated[str, typer.Argument(help="A name of `tidemill model list`.")]) -> None:
    """Remove a model; where it was added from stays as it is."""
    from tidemill_engine.model_store import ModelStore
    from tidemill_harness import stack_file

    running = stack_file.read()
    if running is not None and running.model == name:
        raise TidemillError(Reason.CONFIG, f"the running stack serves {name!r}; `tidemill down` first")
    ModelStore().remove(name)
    typer.echo(f"Removed {name}")
