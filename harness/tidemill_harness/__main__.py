"""The ``tidemill`` command: one module per group of verbs, each of which registers its own on ``app``.

A module imports what is heavy (grpc, torch, the supervisor) inside its verbs, so that `tidemill run --url` starts with the
harness extra alone.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import tidemill_common
from tidemill_common.errors import TidemillError
from tidemill_harness import commands_key, commands_model, commands_run, commands_stack, doctor

app = typer.Typer(
    name="tidemill",
    help="The agent loop, self-hosted: harness, Responses API over WebSocket, and inference.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
commands_run.register(app)
app.add_typer(commands_model.app, name="model")
app.add_typer(commands_key.app, name="key")
commands_stack.register(app)
doctor.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidemill {tidemill_common.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """The agent loop, self-hosted."""


def main() -> None:
    """Run a verb. A catalogue error ends with its sentence on stderr and exit code 1; wrong usage with 2; Ctrl-C with 130."""
    try:
        app()
    except TidemillError as error:
        sys.exit(f"tidemill: {error.sentence()}")


if __name__ == "__main__":
    main()
