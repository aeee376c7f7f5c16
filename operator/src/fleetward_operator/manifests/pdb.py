"""The PodDisruptionBudget of a service."""

from __future__ import annotations

from fleetward_operator.manifests.desired import DesiredService
from fleetward_operator.manifests.labels import child_metadata, engine_selector
from fleetward_operator.manifests.manifest import Manifest


def build_pdb(desired: DesiredService) -> Manifest:
    """One engine at a time may be evicted; an engine that isn't ready never blocks a drain."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": child_metadata(desired, desired.name),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": engine_selector(desired.name)},
        },
    }
