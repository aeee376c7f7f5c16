"""`fleetward status`: services, policies, tenants and purges, with what is wrong in words."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fleetward_cli.cluster import GROUP, KubeconfigOption, read_paths
from fleetward_cli.output import Format, FormatOption, build_table, console, print_json
from fleetward_cli.summary import KINDS, Kind, KubeObject, summarize, to_row


def status(
    *,
    namespace: Annotated[
        str | None, typer.Option("-n", "--namespace", help="only this namespace's objects")
    ] = None,
    kubeconfig: KubeconfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Show services, policies, tenants and purges, and what is wrong with them."""
    paths = {kind.plural: f"{GROUP}/{kind.plural}" for kind in KINDS}
    lists = read_paths(paths, kubeconfig=kubeconfig)
    found = {
        kind.plural: [
            summarize(kind, item)
            for item in lists[kind.plural].get("items") or ()
            if shown(item, namespace)
        ]
        for kind in KINDS
    }
    if output is Format.JSON:
        print_json(found)
    else:
        print_tables(found)


def shown(item: KubeObject, namespace: str | None) -> bool:
    """Whether the namespace filter lets it through; cluster-scoped objects always are."""
    own = (item.get("metadata") or {}).get("namespace")
    return namespace is None or own is None or own == namespace


def print_tables(found: dict[str, list[dict[str, Any]]]) -> None:
    """One table per kind that has objects."""
    out = console()
    for kind in KINDS:
        summaries = found[kind.plural]
        if summaries:
            out.print(build_table(kind.title, headings(kind), [to_row(kind, s) for s in summaries]))
            out.print()
    if not any(found.values()):
        out.print("nothing here yet: apply an InferenceService (see examples/quickstart)")


def headings(kind: Kind) -> list[str]:
    """The table's first line."""
    return ["NAME", *(heading for heading, _ in kind.columns), "MESSAGE"]
