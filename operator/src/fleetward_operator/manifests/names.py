"""Names, ports and paths that several manifests share (docs/contracts.md)."""

from __future__ import annotations

API_VERSION = "fleetward.io/v1alpha1"
SERVICE_KIND = "InferenceService"

SERVICE_LABEL = "fleetward.io/service"
PURGE_LABEL = "fleetward.io/purge"
DESIRED_HASH_ANNOTATION = "fleetward.io/desired-hash"
CHILDREN_MANAGER = "fleetward-children"
BUNDLE_MANAGER = "fleetward-bundle"

COMPONENT_LABEL = "app.kubernetes.io/component"
ENGINE_COMPONENT = "engine"
GATEWAY_COMPONENT = "gateway"
OPERATOR_COMPONENT = "operator"
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"

PUBLIC_PORT = 8000
ADMIN_PORT = 8001
METRICS_PORT = 9090

TRUST_MOUNT = "/etc/fleetward/trust"
TOKEN_MOUNT = "/var/run/secrets/fleetward"  # noqa: S105 - a directory, not a secret
TOKEN_AUDIENCE = "fleetward-operator"  # noqa: S105 - an audience, not a secret
MODELS_MOUNT = "/models"

ENGINE_UID = 65532
ENGINE_CONTAINER = "engine"


def trust_name(service: str) -> str:
    """Name of a service's copy of the public keys."""
    return f"{service}-trust"


def bundle_name(service: str) -> str:
    """Name of the ConfigMap that keeps a service's policy bundle."""
    return f"{service}-bundle"
