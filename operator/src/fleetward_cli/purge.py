"""`fleetward cache purge`: destroy a tenant's cache, and wait until it is shown to be gone.

Exit status: 0 Completed (or only created); 1 not taken by the API server, or it could not be
followed; 2 wrong usage; 5 Incomplete, also where widening it was refused.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from fleetward_api.quantity import parse_duration
from fleetward_cli.cluster import (
    GROUP,
    PATIENCE_S,
    RELEASE_NAMESPACE,
    KubeconfigOption,
    ReleaseNamespaceOption,
    find_environment,
)
from fleetward_cli.errors import PURGE_INCOMPLETE, CliError
from fleetward_cli.output import Format, FormatOption, print_json
from fleetward_cli.summary import KubeObject
from fleetward_kube import KubeClient, KubeError

POLL_S: Final = 0.5
GRACE_S: Final = 60.0
"""Beyond its deadline, for a purge to be picked up and its end to be written."""
FINAL: Final = ("Completed", "Incomplete")
_NAME_ROOM: Final = 48


def purge(  # noqa: PLR0913 - one for each option
    tenant: Annotated[str, typer.Argument(help="whose cache to destroy: the Tenant's name")],
    *,
    reason: Annotated[
        str, typer.Option("--reason", help="why, for the people who read the evidence later")
    ],
    user: Annotated[str | None, typer.Option("--user", help="only this user's cache")] = None,
    permission_scope: Annotated[
        str | None,
        typer.Option("--permission-scope", help="only cache made under this permission scope"),
    ] = None,
    document_tag: Annotated[
        str | None, typer.Option("--document-tag", help="only cache made from documents so tagged")
    ] = None,
    service_selector: Annotated[
        str | None,
        typer.Option("--service-selector", help="only services with these labels: a=b,c=d"),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option("--deadline", help="longest time, such as 5m (default: the kind's)"),
    ] = None,
    refuse_widening: Annotated[
        bool,
        typer.Option("--refuse-widening", help="refuse, rather than purge more than asked for"),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="follow it to its end, or only create it")
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print the manifest and create nothing")
    ] = False,
    kubeconfig: KubeconfigOption = None,
    release_namespace: ReleaseNamespaceOption = RELEASE_NAMESPACE,
    output: FormatOption = Format.TEXT,
) -> None:
    """Destroy a tenant's cache in every engine and gateway, and wait for the evidence of it.

    Exit status: 0 Completed; 1 not taken by the API server, or it could not be followed; 2 wrong
    usage; 5 Incomplete, also where widening it was refused.
    """
    spec = {
        "tenant": tenant,
        "user": user,
        "permissionScope": permission_scope,
        "documentTag": document_tag,
        "serviceSelector": read_selector(service_selector),
        "reason": reason,
        "deadline": deadline,
        "onCoarseIsolation": "Refuse" if refuse_widening else None,
    }
    manifest = build_manifest(spec, mark=secrets.token_hex(4))
    if dry_run:
        print_json(manifest)
        return
    tell = print_nothing if output is Format.JSON else typer.echo
    ended = asyncio.run(carry_out(manifest, kubeconfig=kubeconfig, wait=wait, tell=tell))
    if output is Format.JSON:
        print_json(facts_of(ended))
    elif wait:
        for line in last_words(ended, release_namespace=release_namespace):
            typer.echo(line)
    raise typer.Exit(exit_code(ended))


def build_manifest(spec: Mapping[str, Any], *, mark: str) -> KubeObject:
    """The CachePurge to create; what is None is left to the schema's defaults.

    Args:
        spec: its fields.
        mark: makes its name one that is not in use.
    """
    stem = str(spec["tenant"])[:_NAME_ROOM].rstrip("-.")
    return {
        "apiVersion": "fleetward.io/v1alpha1",
        "kind": "CachePurge",
        "metadata": {"name": f"purge-{stem}-{mark}"},
        "spec": {name: value for name, value in spec.items() if value is not None},
    }


def read_selector(text: str | None) -> dict[str, Any] | None:
    """A label selector of equalities.

    Raises:
        typer.BadParameter: a part is not of the form `label=value`.
    """
    if text is None:
        return None
    labels = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not (name.strip() and equals) or "=" in value:
            raise typer.BadParameter("give labels as a=b,c=d", param_hint="--service-selector")
        labels[name.strip()] = value.strip()
    return {"matchLabels": labels}


async def carry_out(
    manifest: KubeObject, *, kubeconfig: Path | None, wait: bool, tell: Callable[[str], object]
) -> KubeObject:
    """Create a purge and, if asked to, follow it; the object as it was last seen.

    Raises:
        KubeError: the API server refused it, in its words.
        CliError: it was deleted, or did not end in time.
    """
    environ = find_environment(kubeconfig, os.environ)
    async with KubeClient.from_environment(environ, patience_s=PATIENCE_S) as client:
        made = await client.request("POST", f"{GROUP}/cachepurges", body=manifest)
        tell(f"cachepurge/{made['metadata']['name']} created")
        return await _follow(client, made, tell=tell) if wait else made


async def _follow(
    client: KubeClient, made: KubeObject, *, tell: Callable[[str], object]
) -> KubeObject:
    name = made["metadata"]["name"]
    # The server's copy has the deadline also where it is the kind's default.
    longest = parse_duration(str(made["spec"]["deadline"])) / 1000 + GRACE_S
    until = time.monotonic() + longest
    told = ""
    while True:
        try:
            seen = await client.request("GET", f"{GROUP}/cachepurges/{name}")
        except KubeError as error:
            if error.not_found:
                message = f"CachePurge {name} was deleted before it ended; its evidence says so"
                raise CliError(message) from error
            raise
        words = progress(seen)
        if words != told:
            tell(words)
            told = words
        if phase_of(seen) in FINAL:
            return seen
        if time.monotonic() > until:
            raise CliError(
                f"CachePurge {name} has not ended {longest:.0f} s after it was made: see that the "
                "operator runs (fleetward check)"
            )
        await asyncio.sleep(POLL_S)


def phase_of(seen: KubeObject) -> str:
    """The step it is in; `Pending` before the operator has seen it."""
    return str((seen.get("status") or {}).get("phase") or "Pending")


def progress(seen: KubeObject) -> str:
    """How far a purge is, in one line."""
    status = seen.get("status") or {}
    words = f"{phase_of(seen)}: {status.get('provedMembers', 0)} of {status.get('members', 0)}"
    widened = status.get("widenedTo")
    return f"{words} member(s) proved" + (f", widened to {widened}" if widened else "")


def last_words(ended: KubeObject, *, release_namespace: str) -> Iterator[str]:
    """What came of it, and where its evidence is."""
    name, status = ended["metadata"]["name"], ended.get("status") or {}
    if status.get("message"):
        yield str(status["message"])
    for one in status.get("notCovered") or ():
        yield f"not shown: {one.get('subject', '')}: {one.get('reason', '')}"
    if status.get("evidenceDigest"):
        maps = ", ".join(status.get("evidenceConfigMaps") or ())
        yield f"evidence: {status['evidenceDigest']}"
        yield f"in namespace {release_namespace}: ConfigMap {maps}"
        yield f"check it: fleetward evidence verify --purge {name} --key FINGERPRINT"


def facts_of(ended: KubeObject) -> dict[str, Any]:
    """The same for programs."""
    status = ended.get("status") or {}
    names = ("message", "widenedTo", "members", "provedMembers", "blocks", "bytes",
             "evidenceDigest", "evidenceConfigMaps", "notCovered")  # fmt: skip
    return {
        "name": ended["metadata"]["name"],
        "phase": phase_of(ended),
        **{name: status[name] for name in names if name in status},
        "exitCode": exit_code(ended),
    }


def exit_code(ended: KubeObject) -> int:
    """The process's exit status for a purge that ended, or was only created."""
    return PURGE_INCOMPLETE if phase_of(ended) == "Incomplete" else 0


def print_nothing(_words: str) -> None:
    """For programs, which get one document at the end."""
