"""The ConfigMap that keeps a service's policy bundle, so that its generation only grows."""

from __future__ import annotations

from fleetward_operator.manifests.desired import DesiredService
from fleetward_operator.manifests.labels import child_metadata
from fleetward_operator.manifests.manifest import Manifest
from fleetward_operator.manifests.names import bundle_name

BUNDLE_KEY = "bundle.json"


def build_bundle_configmap(desired: DesiredService, *, bundle_json: str) -> Manifest:
    """Holds the bundle without the epoch secret. No engine mounts it: engines are pushed to."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(desired, bundle_name(desired.name)),
        "data": {BUNDLE_KEY: bundle_json},
    }
