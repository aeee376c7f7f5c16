"""Another build of operator and gateway, and back again, under the eyes of streaming clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from e2e.cluster.steps import Steps
from e2e.demo.place import Place, find_place
from e2e.demo.release import RELEASE, deploy, wait_part
from e2e.figures.record import record
from e2e.images.plan import ImageSet
from e2e.tests.support import manifests
from e2e.tests.support.evidence import RELEASE as NAMESPACE
from e2e.tests.support.gateway import Gateway
from e2e.tests.support.images import next_operator_image
from e2e.tests.support.kubectl import Cluster, condition, eventually
from e2e.tests.support.services import ENGINES, ready, restarts_and_names
from e2e.tests.support.traffic import Traffic

PARTS = ("operator", "gateway")
WORDS = "The same long letter, once more: " + "water, bread, salt, a lamp and a map; " * 20
STREAMS = {"max_tokens": 90, "ignore_eos": True, "stream": True}
"""Streams of about three seconds: one is always under way while pods change."""


@dataclass(slots=True)
class Seen:
    """Requests and engines over all turns of a test."""

    turns: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    def add(self, traffic: Traffic) -> None:
        """Count one client's requests."""
        for outcome, count in traffic.outcomes.items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count
        self.lost += traffic.lost
        self.refusals += traffic.refusals


@pytest.fixture(scope="module")
def place(cluster: Cluster) -> Place:
    """Helm and the release on the local cluster."""
    return find_place(steps=Steps(tell=lambda _line: None))


@pytest.fixture(scope="module")
def images(cluster: Cluster) -> ImageSet:
    """What the release runs now."""
    operator = cluster.get("deployment", "fleetward-operator", namespace=NAMESPACE)
    (container,) = operator["spec"]["template"]["spec"]["containers"]
    environment = {each["name"]: each.get("value", "") for each in container["env"]}
    return ImageSet(operator=container["image"], engine=environment["FLEETWARD_ENGINE_IMAGE"])


@pytest.fixture(scope="module")
def following(images: ImageSet) -> ImageSet:
    """The same engine under the next operator and gateway."""
    return ImageSet(operator=next_operator_image(), engine=images.engine)


@pytest.fixture
def release(place: Place, images: ImageSet) -> Iterator[Place]:
    """The release; it runs the present images again at the end, however the test ends."""
    yield place
    deploy(place, images)


def test_helm_test_passes(place: Place, cluster: Cluster, full: bool) -> None:
    told = place.helm("test", RELEASE, "--namespace", NAMESPACE)
    passed = told.count("Succeeded")
    if full:
        record("helm-test-passed", int("Failed" not in told and passed > 0))
    assert "Failed" not in told
    assert "fleetward-check" in told
    for kind, name in (("pod", "check"), ("serviceaccount", "test"), ("clusterrole", "test")):
        eventually(
            lambda kind=kind, name=name: (
                not cluster.exists(  # type: ignore[misc]
                    kind, f"fleetward-{name}", namespace=NAMESPACE
                )
            ),
            what=f"the test's {kind} gone",
        )


@pytest.mark.timeout(1200)
def test_another_build_and_back_loses_no_request_and_no_engine(
    cluster: Cluster,
    tenants: dict[str, Gateway],
    playground: str,
    release: Place,
    images: ImageSet,
    following: ImageSet,
    full: bool,
) -> None:
    names = [f"steady-{number}" for number in range(3 if full else 1)]
    cluster.apply(*(manifests.service(name, namespace=playground) for name in names))
    for name in names:
        ready(cluster, name, playground)
    tenants["ada"].chat(names[0], WORDS)
    assert tenants["ada"].cached_tokens(names[0], WORDS) > 0
    before = _engines(cluster, playground)
    seen = Seen()
    for _turn in range(3 if full else 1):
        _move(seen, tenants["ada"], names, to=lambda: deploy(release, following))
        _served_by(cluster, following.operator)
        _move(seen, tenants["ada"], names, to=lambda: _back(release, images))
        _served_by(cluster, images.operator)
        seen.turns += 2
        after = _engines(cluster, playground)
        seen.changed += sorted(map(str, before ^ after))
    cached = tenants["ada"].cached_tokens(names[0], WORDS)
    if full:
        detail = f"{seen.turns} changes, {len(names)} services, {seen.outcomes}"
        record("upgrade-lost-requests", len(seen.lost) + len(seen.refusals), detail)
        record("upgrade-engine-restarts", len(seen.changed), detail)
    assert (seen.lost, seen.refusals, seen.changed) == ([], [], [])
    assert seen.outcomes["complete"] >= 10 * seen.turns, "the clients were not there"
    assert cached > 0, "the engine's cache did not outlive the change"


def _move(seen: Seen, gateway: Gateway, names: list[str], *, to: Callable[[], None]) -> None:
    """Change the release while clients stream: some without a rest, some that rest in between."""
    busy = Traffic(gateway, names, clients=3, fields=STREAMS)
    resting = Traffic(gateway, names, clients=3, seed=1, pauses=(1.0, 6.0))
    with busy, resting:
        eventually(lambda: busy.outcomes["complete"] >= 3, what="the clients are served")
        to()
        done = busy.outcomes["complete"]
        eventually(lambda: busy.outcomes["complete"] >= done + 3, what="they still are")
    seen.add(busy)
    seen.add(resting)


def _back(place: Place, images: ImageSet) -> None:
    """What a person does who regrets an upgrade."""
    place.helm("rollback", RELEASE, "--namespace", NAMESPACE)
    for part in PARTS:
        wait_part(place, part, image=images.operator)


def _served_by(cluster: Cluster, image: str) -> None:
    """Every pod of operator and gateway runs this image."""
    for part in PARTS:
        labels = f"app.kubernetes.io/component={part}"
        pods = cluster.find("pods", namespace=NAMESPACE, labels=labels)
        assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {image}


def _engines(cluster: Cluster, playground: str) -> set[tuple[object, ...]]:
    """Engine pods with their restarts, their Deployments' generations, since when all is Ready."""
    found: set[tuple[object, ...]] = set()
    for namespace in (playground, "quickstart"):
        found |= restarts_and_names(cluster.find("pods", namespace=namespace, labels=ENGINES))
        for deployment in cluster.find("deployments", namespace=namespace):
            metadata = deployment["metadata"]
            found.add((namespace, metadata["name"], metadata["generation"]))
        for service in cluster.find("fsvc", namespace=namespace):
            since = condition(service, "Ready").get("lastTransitionTime")
            found.add((namespace, service["metadata"]["name"], "ready", since))
    return found
