"""The ServiceAccount whose projected token admits an engine; it has no rights of its own."""

from __future__ import annotations

from fleetward_operator.manifests.desired import DesiredService
from fleetward_operator.manifests.labels import child_metadata
from fleetward_operator.manifests.manifest import Manifest


def build_serviceaccount(desired: DesiredService) -> Manifest:
    """ServiceAccount named like the service, never mounted as an API credential."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": child_metadata(desired, desired.name),
        "automountServiceAccountToken": False,
    }
