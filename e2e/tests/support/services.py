"""Waiting for services and looking at their pods."""

from __future__ import annotations

from e2e.tests.support.kubectl import Cluster, Manifest, condition, eventually

ENGINES = "app.kubernetes.io/component=engine"
"""Selects engine pods."""


def ready(cluster: Cluster, name: str, namespace: str, *, within: float = 90) -> None:
    """Wait until a service says Ready for its present generation."""
    eventually(
        lambda: settled(cluster, name, namespace),
        what=f"service {namespace}/{name} Ready",
        within=within,
    )


def pods_of(cluster: Cluster, name: str, namespace: str) -> list[Manifest]:
    """The engine pods of a service that are not being deleted."""
    found = cluster.find("pods", namespace=namespace, labels=f"fleetward.io/service={name}")
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def restarts_and_names(pods: list[Manifest]) -> set[tuple[str, int]]:
    """What changes when a pod is replaced or one of its containers restarts."""
    return {
        (pod["metadata"]["uid"], status["restartCount"])
        for pod in pods
        for status in pod["status"]["containerStatuses"]
    }


def settled(cluster: Cluster, name: str, namespace: str) -> bool:
    """Whether a service's status speaks of its present spec and says Ready."""
    return is_settled(cluster.get("fsvc", name, namespace=namespace))


def is_settled(service: Manifest) -> bool:
    """The same of a service that has been read."""
    status = service.get("status", {})
    current = status.get("observedGeneration") == service["metadata"]["generation"]
    return bool(current and condition(service, "Ready").get("status") == "True")


_CHILDREN = "deployments,services,serviceaccounts,poddisruptionbudgets,networkpolicies,configmaps"


def orphans_and_duplicates(cluster: Cluster, namespace: str) -> list[str]:
    """Children of a namespace whose service is gone, or that are there twice for one service."""
    alive = {
        service["metadata"]["uid"]: service["metadata"]["name"]
        for service in cluster.find("fsvc", namespace=namespace)
        if "deletionTimestamp" not in service["metadata"]
    }
    labels = "app.kubernetes.io/managed-by=fleetward"
    wrong: list[str] = []
    seen: set[tuple[str, str, str]] = set()
    for child in cluster.find(_CHILDREN, namespace=namespace, labels=labels):
        metadata = child["metadata"]
        if "deletionTimestamp" in metadata:
            continue
        owner = metadata.get("ownerReferences", [{}])[0].get("uid", "")
        purpose = metadata["name"].removeprefix(alive.get(owner, ""))
        key = (child["kind"], owner, purpose)
        if owner not in alive or key in seen:
            wrong.append(f"{child['kind']} {metadata['name']}")
        seen.add(key)
    return wrong
