"""A namespace full of services can always be deleted: with the operator up, and with it down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.tests.support import manifests
from e2e.tests.support.evidence import RELEASE
from e2e.tests.support.kubectl import Cluster, eventually
from e2e.tests.support.services import ready

_OPERATOR = "app.kubernetes.io/component=operator"


@pytest.fixture
def operator_down(cluster: Cluster) -> Iterator[None]:
    """The operator scaled to zero for one test."""
    deployment = cluster.find("deployments", namespace=RELEASE, labels=_OPERATOR)[0]
    name, replicas = deployment["metadata"]["name"], deployment["spec"]["replicas"]
    yield
    cluster.run("scale", "deployment", name, "-n", RELEASE, f"--replicas={replicas}")
    cluster.run("rollout", "status", "deployment", name, "-n", RELEASE, "--timeout=90s")


def _fill(cluster: Cluster, namespace: str) -> None:
    cluster.apply(manifests.namespace(namespace), manifests.policy("p", namespace=namespace))
    names = [f"{namespace}-{index}" for index in range(3)]
    cluster.apply(*(manifests.service(name, namespace=namespace) for name in names))
    for name in names:
        ready(cluster, name, namespace)


def _emptied(cluster: Cluster, namespace: str) -> None:
    """Delete the namespace, and wait for all of ours in it to go.

    The namespace itself goes later: after pods with a long grace period Kubernetes looks at it
    again only in half of that time.
    """
    cluster.delete("namespace", namespace)
    for kind in ("fsvc", "cpol", "deployments", "pods"):
        eventually(
            lambda: not cluster.find(kind, namespace=namespace),  # noqa: B023
            what=f"no {kind} in {namespace}",
            within=120,
        )


def test_emptied_with_the_operator_up(cluster: Cluster) -> None:
    _fill(cluster, "e2e-gone-up")
    _emptied(cluster, "e2e-gone-up")


def test_emptied_with_the_operator_down(cluster: Cluster, operator_down: None) -> None:
    _fill(cluster, "e2e-gone-down")
    deployment = cluster.find("deployments", namespace=RELEASE, labels=_OPERATOR)[0]
    name = deployment["metadata"]["name"]
    cluster.run("scale", "deployment", name, "-n", RELEASE, "--replicas=0")
    eventually(
        lambda: not cluster.find("pods", namespace=RELEASE, labels=_OPERATOR),
        what="operator down",
        within=60,
    )
    _emptied(cluster, "e2e-gone-down")


def test_both_namespaces_are_gone_with_all_that_was_in_them(cluster: Cluster) -> None:
    names = {"e2e-gone-up", "e2e-gone-down"}
    for name in names:
        eventually(lambda: not cluster.exists("namespace", name), what=f"{name} gone", within=120)  # noqa: B023
    left = cluster.find("all", labels="app.kubernetes.io/managed-by=fleetward")
    assert not [each for each in left if each["metadata"]["namespace"] in names]
