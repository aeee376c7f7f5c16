"""Kill -9 of operators again and again while services roll out and clients ask."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import pytest

from e2e.chaos.scale import seed
from e2e.figures.record import record
from e2e.tests.support import manifests
from e2e.tests.support.evidence import RELEASE
from e2e.tests.support.gateway import Gateway
from e2e.tests.support.kubectl import (
    Cluster,
    Manifest,
    NeverHappened,
    condition,
    eventually,
)
from e2e.tests.support.leader import kill_operator, leader
from e2e.tests.support.services import is_settled, orphans_and_duplicates, pods_of, ready
from e2e.tests.support.traffic import Traffic

_OPERATORS = "app.kubernetes.io/component=operator"
_STILL = 4
"""The first services are never edited: nothing about them may change."""


@dataclass(frozen=True, slots=True)
class Storm:
    """How hard it blows."""

    services: int
    kills: int
    longest_s: float


def test_a_rollout_survives_kills_at_random_moments(
    cluster: Cluster, tenants: dict[str, Gateway], playground: str, full: bool
) -> None:
    storm = Storm(20, 100, 9.0) if full else Storm(_STILL + 2, 3, 4.0)
    dice = random.Random(seed())  # noqa: S311 - moments, not secrets
    names = [f"s-{number}" for number in range(storm.services)]
    for name in names:
        cluster.apply(_service(name, playground))
    for name in names:
        ready(cluster, name, playground, within=400)
    before = _kept(cluster, playground, names[:_STILL])
    with Traffic(tenants["ada"], names, seed=seed()) as traffic:
        for turn in range(storm.kills):
            _edit(cluster, playground, dice.choice(names[_STILL:]), turn)
            time.sleep(dice.uniform(0, storm.longest_s))
            _kill(cluster, dice)
        last = time.monotonic()
        try:
            eventually(lambda: not _unfinished(cluster, playground), what="the end", within=120)
        except NeverHappened:
            pytest.fail(f"not complete: {_unfinished(cluster, playground)}")
        seconds = time.monotonic() - last
    wrong = orphans_and_duplicates(cluster, playground)
    detail = f"{storm.kills} kills, {storm.services} services, {dict(traffic.outcomes)}"
    if full:
        record("storm-seconds", round(seconds, 1), detail)
        record("storm-lost-requests", len(traffic.lost), detail)
        record("storm-orphans-duplicates", len(wrong))
    assert traffic.outcomes["complete"] > storm.kills, "the clients were not there"
    assert (traffic.lost, traffic.refusals) == ([], [])
    assert wrong == []
    assert _kept(cluster, playground, names[:_STILL]) == before


def _service(name: str, namespace: str) -> Manifest:
    """Small enough for twenty, and for the pods that a rollout adds, beside the demo on 2 cores."""
    return manifests.service(name, namespace=namespace, resources={"cpu": "20m", "memory": "256Mi"})


def _edit(cluster: Cluster, namespace: str, name: str, turn: int) -> None:
    """Sometimes a rollout of its pods, sometimes a change that needs none."""
    changed = _service(name, namespace)
    changed["spec"]["model"]["aliases"] = [f"{name}-alias-{turn}"]
    changed["spec"]["engine"]["maxModelLen"] = 4096 - turn // 3
    cluster.apply(changed)


def _kill(cluster: Cluster, dice: random.Random) -> None:
    """Two times of three the leader, else any operator; its pod is replaced at once.

    The pod goes with its process, since the kubelet's back-off of a container that ends again and
    again would soon be longer than the storm.
    """
    pods = [pod["metadata"]["name"] for pod in _living(cluster)]
    leading = leader(cluster).split("_", 1)[0]
    chosen = leading if leading in pods and dice.random() < 2 / 3 else dice.choice(pods)
    kill_operator(chosen)
    cluster.delete("pod", chosen, namespace=RELEASE)


def _living(cluster: Cluster) -> list[Manifest]:
    found: list[Manifest] = []

    def _any() -> bool:
        pods = cluster.find("pods", namespace=RELEASE, labels=_OPERATORS)
        found[:] = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return bool(found)

    eventually(_any, what="an operator pod", within=60)
    return found


def _unfinished(cluster: Cluster, namespace: str) -> dict[str, str]:
    """The services that are not complete, and what they say."""
    services = cluster.find("fsvc", namespace=namespace)
    return {
        each["metadata"]["name"]: str(each.get("status", {}).get("message"))
        for each in services
        if condition(each, "Progressing").get("reason") != "Complete" or not is_settled(each)
    }


def _kept(cluster: Cluster, namespace: str, names: list[str]) -> set[tuple[str, str, object]]:
    """Generations of the children and uids of the pods of services that nobody edits."""
    found: set[tuple[str, str, object]] = set()
    for name in names:
        for kind in ("deployment", "networkpolicy", "poddisruptionbudget"):
            for child in cluster.find(
                kind, namespace=namespace, labels=f"fleetward.io/service={name}"
            ):
                found.add((kind, name, child["metadata"]["generation"]))
        for pod in pods_of(cluster, name, namespace):
            restarts = [each["restartCount"] for each in pod["status"]["containerStatuses"]]
            found.add(("pod", pod["metadata"]["uid"], tuple(restarts)))
    return found
