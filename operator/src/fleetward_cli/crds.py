"""`fleetward crds`: the definitions of our kinds, as this release has them."""

from __future__ import annotations

import typer

from fleetward_api.crd.definitions import DEFINITIONS, build_definition
from fleetward_api.crd.printing import print_definitions
from fleetward_cli.output import Format, FormatOption, print_json

app = typer.Typer(no_args_is_help=True, help="The definitions of Fleetward's kinds.")


@app.callback()
def group() -> None:
    """Keep `print` a subcommand, since more may follow."""


@app.command("print")
def print_crds(output: FormatOption = Format.TEXT) -> None:
    """Print the CustomResourceDefinitions, ready for `kubectl apply -f -`."""
    if output is Format.JSON:
        items = [build_definition(each) for each in DEFINITIONS]
        print_json({"apiVersion": "v1", "kind": "List", "items": items})
    else:
        typer.echo("---\n".join(print_definitions().values()), nl=False)
