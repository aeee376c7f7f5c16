"""Pods that are gone: how their containers ended, where the kubelet had said so."""

from __future__ import annotations

from typing import Any, cast

from fleetward_kube import KubeClient
from fleetward_operator.edges.own_writes import OwnWrites
from fleetward_operator.edges.store import LAST_WORDS_KEPT, Store
from tests.support.cluster_facts import ended, running


def pod(name: str, status: dict[str, Any], *, version: int) -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/part-of": "fleetward",
        "app.kubernetes.io/component": "engine",
        "fleetward.io/service": "demo",
    }
    metadata = {
        "namespace": "n",
        "name": name,
        "uid": f"uid-{name}",
        "labels": labels,
        "resourceVersion": str(version),
    }
    return {"metadata": metadata, "spec": {"containers": []}, "status": status}


def store_of() -> Store:
    return Store(
        cast("KubeClient", object()),
        release_namespace="r",
        key_namespace="k",
        own_writes=OwnWrites(lambda: 0.0),
    )


def test_the_last_words_on_a_pod_outlive_it() -> None:
    store = store_of()
    alive = pod("a", running("10.0.0.1"), version=1)
    store._index_pod("n/a", None, alive)
    dead = pod("a", ended("10.0.0.1", exit_code=0), version=2)
    store._index_pod("n/a", alive, dead)
    assert store.ended_pod("uid-a") is None
    store._index_pod("n/a", dead, None)
    assert store.pod("n/a") is None
    found = store.ended_pod("uid-a")
    assert found is not None
    assert "exit code 0" in found.ended_words


def test_a_pod_removed_by_force_has_no_last_words() -> None:
    store = store_of()
    alive = pod("a", running("10.0.0.1"), version=1)
    store._index_pod("n/a", None, alive)
    store._index_pod("n/a", alive, None)
    assert store.ended_pod("uid-a") is None


def test_last_words_are_bounded() -> None:
    store = store_of()
    for number in range(LAST_WORDS_KEPT + 1):
        item = pod(f"p{number}", ended("10.0.0.1", exit_code=1), version=number + 1)
        store._index_pod(f"n/p{number}", None, item)
        store._index_pod(f"n/p{number}", item, None)
    assert store.ended_pod("uid-p0") is None
    assert store.ended_pod(f"uid-p{LAST_WORDS_KEPT}") is not None
