"""Reads from the API server: which one, and a few calls."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from fleetward_kube import KubeClient, KubeError

GROUP: Final = "/apis/fleetward.io/v1alpha1"
DEFAULT_KUBECONFIG: Final = Path("~/.kube/config")

KubeconfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        help="The cluster's kubeconfig (default: KUBECONFIG, else ~/.kube/config, else the pod's)",
    ),
]
ReleaseNamespaceOption: TypeAlias = Annotated[
    str, typer.Option("--release-namespace", help="The namespace that the chart is installed in")
]
RELEASE_NAMESPACE: Final = "fleetward-system"
PATIENCE_S: Final = 30.0


def find_environment(kubeconfig: Path | None, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment that leads to the asked cluster.

    Args:
        kubeconfig: from the command line; wins over the environment.
        environ: the process's own.
    """
    if kubeconfig is not None:
        return {**environ, "KUBECONFIG": str(kubeconfig)}
    usual = DEFAULT_KUBECONFIG.expanduser()
    if not environ.get("KUBECONFIG") and usual.exists():
        return {**environ, "KUBECONFIG": str(usual)}
    return dict(environ)


def read_paths(paths: Mapping[str, str], *, kubeconfig: Path | None) -> dict[str, dict[str, Any]]:
    """GET each path; the answers under the same names.

    Raises:
        KubeError: the first refusal or failure; a kind that is not installed says so.
    """
    return asyncio.run(_read_paths(paths, find_environment(kubeconfig, os.environ)))


async def _read_paths(
    paths: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    async with KubeClient.from_environment(environ, patience_s=PATIENCE_S) as client:
        return {name: await _read(client, path) for name, path in paths.items()}


async def _read(client: KubeClient, path: str) -> dict[str, Any]:
    url, _, selector = path.partition("?labelSelector=")
    query = {"labelSelector": selector} if selector else None
    try:
        return await client.request("GET", url, query=query)
    except KubeError as error:
        # A missing kind is told as a bare 404 without an object's name.
        if error.not_found and url.startswith(GROUP) and error.reason != "NotFound":
            raise KubeError(
                error.status,
                "NotInstalled",
                "this cluster does not know Fleetward's kinds: install the chart first",
            ) from error
        raise
