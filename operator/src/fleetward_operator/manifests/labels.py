"""Labels and owner references of everything the operator makes."""

from __future__ import annotations

from fleetward_operator.manifests.desired import DesiredService
from fleetward_operator.manifests.manifest import Manifest
from fleetward_operator.manifests.names import (
    API_VERSION,
    COMPONENT_LABEL,
    ENGINE_COMPONENT,
    SERVICE_KIND,
    SERVICE_LABEL,
)

MANAGED_BY = {
    "app.kubernetes.io/managed-by": "fleetward",
    "app.kubernetes.io/part-of": "fleetward",
}


def service_labels(service: str) -> dict[str, str]:
    """Labels of every child of a service, and of its pods.

    They name no version of the operator: a new operator must restart no engine.
    """
    return {
        **MANAGED_BY,
        "app.kubernetes.io/name": "fleetward-engine",
        "app.kubernetes.io/instance": service,
        COMPONENT_LABEL: ENGINE_COMPONENT,
        SERVICE_LABEL: service,
    }


def release_labels(name: str) -> dict[str, str]:
    """Labels of an object that the operator keeps in the release namespace."""
    return {
        **MANAGED_BY,
        "app.kubernetes.io/name": name,
        "app.kubernetes.io/instance": "fleetward",
        COMPONENT_LABEL: "operator",
    }


def engine_selector(service: str) -> dict[str, str]:
    """The immutable selector of a service's pods."""
    return {COMPONENT_LABEL: ENGINE_COMPONENT, SERVICE_LABEL: service}


def child_metadata(desired: DesiredService, name: str) -> Manifest:
    """Metadata of a child: namespace, labels and the controller owner reference."""
    return {
        "name": name,
        "namespace": desired.namespace,
        "labels": service_labels(desired.name),
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": SERVICE_KIND,
                "name": desired.name,
                "uid": desired.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
