"""Where each kind lives in the API server."""

from __future__ import annotations

from dataclasses import dataclass

GROUP = "/apis/fleetward.io/v1alpha1"


@dataclass(frozen=True, slots=True)
class KindPath:
    """A kind's URL parts."""

    prefix: str
    plural: str
    namespaced: bool = True


KINDS: dict[str, KindPath] = {
    "InferenceService": KindPath(GROUP, "inferenceservices"),
    "CachePolicy": KindPath(GROUP, "cachepolicies"),
    "Tenant": KindPath(GROUP, "tenants", namespaced=False),
    "CachePurge": KindPath(GROUP, "cachepurges", namespaced=False),
    "Deployment": KindPath("/apis/apps/v1", "deployments"),
    "Service": KindPath("/api/v1", "services"),
    "ServiceAccount": KindPath("/api/v1", "serviceaccounts"),
    "ConfigMap": KindPath("/api/v1", "configmaps"),
    "Secret": KindPath("/api/v1", "secrets"),
    "Pod": KindPath("/api/v1", "pods"),
    "Event": KindPath("/api/v1", "events"),
    "NetworkPolicy": KindPath("/apis/networking.k8s.io/v1", "networkpolicies"),
    "PodDisruptionBudget": KindPath("/apis/policy/v1", "poddisruptionbudgets"),
    "Lease": KindPath("/apis/coordination.k8s.io/v1", "leases"),
}

CHILD_KINDS = (
    "ServiceAccount",
    "NetworkPolicy",
    "ConfigMap",
    "Service",
    "PodDisruptionBudget",
    "Deployment",
)


def collection_path(kind: str, namespace: str = "") -> str:
    """Path of a kind's objects, in one namespace or in all."""
    where = KINDS[kind]
    middle = f"/namespaces/{namespace}" if where.namespaced and namespace else ""
    return f"{where.prefix}{middle}/{where.plural}"


def object_path(kind: str, namespace: str, name: str, *, subresource: str = "") -> str:
    """Path of one object or of its subresource."""
    path = f"{collection_path(kind, namespace)}/{name}"
    return f"{path}/{subresource}" if subresource else path
