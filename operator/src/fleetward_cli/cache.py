"""`fleetward cache`: who has how much KV cached, and its end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final

import typer

from fleetward_cli.cluster import GROUP, KubeconfigOption, read_paths
from fleetward_cli.output import Format, FormatOption, build_table, console, print_json
from fleetward_cli.purge import purge
from fleetward_cli.summary import KubeObject

COLUMNS: Final = (
    "TENANT", "CLASS", "SERVICE", "BLOCKS", "BYTES", "HOST", "HITS", "OLDEST", "AS OF",
)  # fmt: skip
UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
STEP: Final = 1024

app = typer.Typer(help="KV cache as data: who has how much, and its end.", no_args_is_help=True)
app.command("purge")(purge)


@app.callback()
def cache() -> None:
    """KV cache as data: who has how much, and its end."""


@app.command("ls")
def list_holdings(
    *,
    namespace: Annotated[
        str | None, typer.Option("-n", "--namespace", help="only this namespace's services")
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="only this tenant's cache")] = None,
    kubeconfig: KubeconfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Show what each tenant has cached, by retention class and service.

    The numbers are those of each service's status: new when a tenant comes or goes or its part of
    the pool moves by ten points, at most every 30 seconds; AS OF is when they were true.
    """
    found = read_paths({"services": f"{GROUP}/inferenceservices"}, kubeconfig=kubeconfig)
    rows = [
        row
        for service in found["services"].get("items") or ()
        for row in rows_of(service)
        if namespace in {None, row["namespace"]} and tenant in {None, row["tenant"]}
    ]
    rows.sort(key=lambda row: (row["tenant"], row["retentionClass"], row["service"]))
    if output is Format.JSON:
        print_json(rows)
    elif rows:
        console().print(build_table("Cache", COLUMNS, [to_cells(row) for row in rows]))
    else:
        console().print("no tenant is said to have anything cached")


def rows_of(service: KubeObject) -> Iterable[dict[str, Any]]:
    """What a service's status says of each tenant's cache, as flat facts."""
    metadata = service.get("metadata") or {}
    report = (service.get("status") or {}).get("kvCache") or {}
    where = {
        "namespace": metadata.get("namespace", ""),
        "service": metadata.get("name", ""),
        "observedAt": report.get("observedAt", ""),
    }
    for one in report.get("holdings") or ():
        yield {
            "tenant": one.get("tenant", ""),
            "retentionClass": one.get("retentionClass", ""),
            **where,
            "blocks": one.get("blocks", 0),
            "bytes": one.get("bytes", 0),
            "hostBlocks": one.get("hostBlocks", 0),
            "hostBytes": one.get("hostBytes", 0),
            "hits": one.get("hits", 0),
            "oldest": one.get("oldest", ""),
        }
    if report.get("otherBlocks"):
        rest = {"tenant": "(others)", "retentionClass": "", "blocks": report["otherBlocks"]}
        yield {
            **rest, **where, "bytes": 0, "hostBlocks": 0, "hostBytes": 0, "hits": 0, "oldest": "",
        }  # fmt: skip


def to_cells(row: dict[str, Any]) -> list[str]:
    """One row of the table."""
    return [
        row["tenant"],
        row["retentionClass"] or "-",
        f"{row['namespace']}/{row['service']}",
        str(row["blocks"]),
        amount(row["bytes"]) if row["bytes"] else "-",
        f"{row['hostBlocks']} ({amount(row['hostBytes'])})" if row["hostBlocks"] else "-",
        str(row["hits"]),
        row["oldest"] or "-",
        row["observedAt"],
    ]


def amount(size: float) -> str:
    """Bytes for people, for example `1.5 MiB`."""
    for unit in UNITS:
        if size < STEP or unit == UNITS[-1]:
            break
        size /= STEP
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
