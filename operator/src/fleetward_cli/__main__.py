"""`fleetward`, also found by kubectl as `kubectl fleetward`."""

from __future__ import annotations

import sys

import typer

from fleetward_api.errors import FleetwardError
from fleetward_cli import cache, crds, evidence
from fleetward_cli.chat import chat
from fleetward_cli.check import check
from fleetward_cli.errors import FAILED
from fleetward_cli.status import status

app = typer.Typer(
    name="fleetward",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Serve models on Kubernetes, and govern their KV cache as user data.",
)
app.command()(status)
app.command()(chat)
app.command()(check)
app.add_typer(evidence.app, name="evidence")
app.add_typer(cache.app, name="cache")
app.add_typer(crds.app, name="crds")


def main() -> None:
    """Run a command; what goes wrong is one sentence on stderr and a non-zero exit status."""
    try:
        app()
    except FleetwardError as error:
        typer.echo(f"error: {error.message}", err=True)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
