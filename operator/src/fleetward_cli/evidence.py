"""`fleetward evidence`: check what a purge left, and print the key to pin.

Exit status of `verify`: 0 genuine and Completed; 1 could not be checked; 2 wrong usage; 3 something
in it is wrong; 4 consistent with itself, but no key was pinned; 5 genuine, and says Incomplete.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from fleetward_api.evidence import EvidenceReport, verify_evidence
from fleetward_cli.cluster import RELEASE_NAMESPACE, KubeconfigOption, ReleaseNamespaceOption
from fleetward_cli.errors import (
    EVIDENCE_INCOMPLETE,
    EVIDENCE_UNPINNED,
    EVIDENCE_WRONG,
    CliError,
)
from fleetward_cli.evidence_source import Found, read_file, read_operator_key, read_purge
from fleetward_cli.output import Format, FormatOption, print_json

app = typer.Typer(no_args_is_help=True, help="Evidence of purges: check it, pin its key.")


@app.command()
def verify(
    file: Annotated[
        Path | None, typer.Argument(help="an evidence file (all chunks joined)")
    ] = None,
    *,
    purge: Annotated[
        str | None, typer.Option("--purge", help="fetch the evidence of this purge instead")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="fingerprint (sha256:…) of the operator's key, from elsewhere"),
    ] = None,
    previous: Annotated[
        Path | None,
        typer.Option("--previous", help="the evidence before it, to check that it follows"),
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="write the evidence to this file too")
    ] = None,
    kubeconfig: KubeconfigOption = None,
    release_namespace: ReleaseNamespaceOption = RELEASE_NAMESPACE,
    output: FormatOption = Format.TEXT,
) -> None:
    """Check signatures, chain, bindings, members and sums of a purge's evidence, offline.

    Exit status: 0 genuine and Completed; 1 could not be checked; 2 wrong usage; 3 something is
    wrong, and the first wrong record is named; 4 consistent with itself, but no key was pinned;
    5 genuine, and says that the purge is Incomplete.
    """
    if (file is None) == (purge is None):
        raise typer.BadParameter("give either a FILE or --purge NAME")
    if file is not None:
        found = read_file(file)
    else:
        found = read_purge(purge or "", namespace=release_namespace, kubeconfig=kubeconfig)
    if save is not None:
        write_file(save, found.data)
    earlier = read_file(previous).data if previous is not None else None
    report = verify_evidence(found.data, key_fingerprint=key, previous=earlier)
    print_report(report, found, output=output)
    raise typer.Exit(exit_code(report, found))


def exit_code(report: EvidenceReport, found: Found) -> int:
    """The process's exit status for this report."""
    if report.first_fault is not None or other_than_promised(report, found):
        return EVIDENCE_WRONG
    if not report.pinned:
        return EVIDENCE_UNPINNED
    return 0 if report.phase == "Completed" else EVIDENCE_INCOMPLETE


def other_than_promised(report: EvidenceReport, found: Found) -> bool:
    """Whether the purge's status names another digest than this evidence has."""
    return found.expected_digest not in ("", report.digest)


def print_report(report: EvidenceReport, found: Found, *, output: Format) -> None:
    """The verdict."""
    swapped = other_than_promised(report, found)
    if output is Format.JSON:
        print_json(
            {
                **dataclasses.asdict(report),
                "source": found.source,
                "digestInStatus": found.expected_digest,
                "exitCode": exit_code(report, found),
            }
        )
        return
    typer.echo(f"{found.source}: {report.summary}")
    typer.echo(f"phase {report.phase or 'unknown'}, {len(found.data)} bytes, {report.digest}")
    if swapped:
        typer.echo(
            f"WRONG: the purge's status names evidence {found.expected_digest}, which this is not"
        )
    elif not report.pinned and report.first_fault is None:
        typer.echo(
            "Pin the operator's key to know who signed it: `fleetward evidence key`, asked once "
            "over a channel you trust, then --key FINGERPRINT."
        )


@app.command("key")
def show_key(
    kubeconfig: KubeconfigOption = None,
    release_namespace: ReleaseNamespaceOption = RELEASE_NAMESPACE,
    output: FormatOption = Format.TEXT,
) -> None:
    """Print the fingerprint of the key that this cluster's operator signs evidence with."""
    key = read_operator_key(namespace=release_namespace, kubeconfig=kubeconfig)
    if output is Format.JSON:
        print_json({"fingerprint": key.fingerprint, "keyId": key.key_id})
    else:
        typer.echo(key.fingerprint)


def write_file(path: Path, data: bytes) -> None:
    """Keep a copy of the evidence.

    Raises:
        CliError: the file cannot be written.
    """
    try:
        path.write_bytes(data)
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}") from error
