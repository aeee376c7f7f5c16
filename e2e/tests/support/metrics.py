"""Counters of engine pods, read through the API server's proxy."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from e2e.tests.support.kubectl import Cluster
from e2e.tests.support.services import ENGINES


def prefix_hits(cluster: Cluster, namespace: str) -> int:
    """Prompt tokens that all engines of a namespace have read from cache so far."""
    return int(total(cluster, namespace, "fleetward_engine_prefix_cache_hits_total"))


def total(cluster: Cluster, namespace: str, sample: str) -> float:
    """The sum of one sample over the engine pods of a namespace."""
    pods = cluster.find("pods", namespace=namespace, labels=ENGINES)
    return sum(_read(cluster, namespace, pod["metadata"]["name"], sample) for pod in pods)


def _read(cluster: Cluster, namespace: str, pod: str, sample: str) -> float:
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}:9090/proxy/metrics"
    families = text_string_to_metric_families(cluster.run("get", "--raw", path))
    return sum(one.value for family in families for one in family.samples if one.name == sample)
