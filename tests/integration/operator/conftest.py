"""A namespace for each test, on the session's API server."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from e2e.cluster.ports import free_port
from fleetward_kube import KubeClient
from tests.support.operator_world import World, until


@pytest.fixture
async def world(crds_installed: Path) -> AsyncIterator[World]:
    """Three fresh namespaces and an administrator's client."""
    mark = secrets.token_hex(3)
    async with KubeClient.from_environment(
        {"KUBECONFIG": str(crds_installed)}, patience_s=60
    ) as client:
        made = World(
            client=client,
            kubeconfig=crds_installed,
            release=f"release-{mark}",
            apps=f"apps-{mark}",
            keys=f"keys-{mark}",
            admin_port=free_port(),
        )
        # Tests of the kinds and of the gateway leave some.
        await made.sweep()
        for name in (made.release, made.apps, made.keys):
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await client.request("POST", "/api/v1/namespaces", body=namespace)

        async def accounts() -> bool:
            return all([await made.get("ServiceAccount", "default", made.release)])

        await until(accounts, what="the release's default ServiceAccount")
        yield made
        await made.close()
