"""The Service whose EndpointSlices tell the gateway where engines are."""

from __future__ import annotations

from fleetward_operator.manifests.desired import DesiredService
from fleetward_operator.manifests.labels import child_metadata, engine_selector
from fleetward_operator.manifests.manifest import Manifest
from fleetward_operator.manifests.names import PUBLIC_PORT


def build_service(desired: DesiredService) -> Manifest:
    """Headless: the gateway picks among endpoints itself, so no virtual address is needed."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(desired, desired.name),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "selector": engine_selector(desired.name),
            "ports": [
                {
                    "name": "http",
                    "port": PUBLIC_PORT,
                    "targetPort": "http",
                    "protocol": "TCP",
                    "appProtocol": "http",
                }
            ],
        },
    }
