"""The Deployment that runs a service's engines."""

from __future__ import annotations

from fleetward_operator.manifests.desired import DesiredService
from fleetward_operator.manifests.labels import child_metadata, engine_selector
from fleetward_operator.manifests.manifest import Manifest
from fleetward_operator.manifests.pod import build_pod_template


def build_deployment(desired: DesiredService) -> Manifest:
    """Deployment named like the service, with the surge and unavailability it asks for."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": child_metadata(desired, desired.name),
        "spec": {
            "replicas": desired.replicas,
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": 3600,
            "selector": {"matchLabels": engine_selector(desired.name)},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {
                    "maxSurge": desired.max_surge,
                    "maxUnavailable": desired.max_unavailable,
                },
            },
            "template": build_pod_template(desired),
        },
    }
