"""`tidemill key`: API keys of the gateway, stored hashed."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tidemill_common import paths
from tidemill_common.errors import Reason, TidemillError
from tidemill_harness.first_key import locked_ring

app = typer.Typer(help="API keys of the gateway, stored hashed.", no_args_is_help=True)


@app.command("add")
def add(tenant: Annotated[str, typer.Option(help="Whose cache and stored responses it reaches.")] = "default") -> None:
    """Make a key; its plain text is shown this once."""
    if not tenant.strip():
        raise typer.BadParameter("must not be empty", param_hint="--tenant")
    with locked_ring() as ring:
        plain, _ = ring.add(tenant)
        ring.save(paths.keys_file())
    typer.echo(plain)


@app.command("list")
def list_keys() -> None:
    """List the keys by id; their plain text is not kept."""
    with locked_ring() as ring:
        records = list(ring.records)
    if not records:
        typer.echo("No key yet; `tidemill up` makes the first one, `tidemill key add` another.")
        return
    table = Table("id", "tenant", "created", "limits", box=None, pad_edge=False)
    for record in records:
        created = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.created))
        limits = ", ".join(f"{name} {value}" for name, value in record.limits.items()) or "-"
        table.add_row(*map(escape, (record.id, record.tenant, created, limits)))
    Console().print(table)


@app.command("revoke")
def revoke(key_id: Annotated[str, typer.Argument(metavar="ID", help="An id of `tidemill key list`.")]) -> None:
    """Forget a key."""
    with locked_ring() as ring:
        if not ring.revoke(key_id):
            raise TidemillError(Reason.NOT_FOUND, f"no key {key_id!r}; `tidemill key list` shows the ids", "id")
        ring.save(paths.keys_file())
    typer.echo(f"Revoked {key_id}")
