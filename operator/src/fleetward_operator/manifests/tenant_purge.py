"""The CachePurge that a Tenant's deletion makes. It outlives the Tenant, as its evidence does."""

from __future__ import annotations

from fleetward_operator.manifests.labels import MANAGED_BY
from fleetward_operator.manifests.manifest import Manifest
from fleetward_operator.manifests.names import API_VERSION


def build_tenant_purge(name: str, *, tenant: str, tenant_uid: str, deadline_s: int) -> Manifest:
    """A purge of the whole tenant, without an owner: nothing collects it with the Tenant."""
    return {
        "apiVersion": API_VERSION,
        "kind": "CachePurge",
        "metadata": {"name": name, "labels": dict(MANAGED_BY)},
        "spec": {
            "tenant": tenant,
            "reason": f"Tenant {tenant} ({tenant_uid}) was deleted.",
            "deadline": f"{deadline_s}s",
        },
    }
