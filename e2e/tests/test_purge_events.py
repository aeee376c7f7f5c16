"""A purge on real pods while engines, operators and nodes' processes come and go under it."""

from __future__ import annotations

import random
import secrets
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from e2e.chaos.scale import seed
from e2e.figures.record import record
from e2e.tests.support import manifests
from e2e.tests.support.evidence import evidence_of, key_fingerprint
from e2e.tests.support.gateway import Gateway
from e2e.tests.support.kubectl import Cluster, Manifest, condition, eventually
from e2e.tests.support.leader import kill_leader, leader, replace_pod
from e2e.tests.support.processes import send
from e2e.tests.support.purges import ended
from e2e.tests.support.services import pods_of, ready, restarts_and_names
from fleetward_api.evidence import verify_evidence

ENGINE = "fleetward-engine"
NAME = "purge-events"


@dataclass(frozen=True, slots=True)
class Scene:
    """What an event may touch."""

    cluster: Cluster
    namespace: str
    pods: tuple[str, ...]
    processes: frozenset[tuple[str, int]]

    def replicas(self, count: int) -> None:
        """Ask for another number of engines."""
        self.cluster.apply(_service(self.namespace, count))


Event = Callable[[Scene], None]


def nothing(scene: Scene) -> None:
    """No trouble at all."""


def engine_killed(scene: Scene) -> None:
    """Kill -9 of one engine's process; its container restarts."""
    assert send(scene.pods[0], ENGINE, signal.SIGKILL), "no engine process found"


def engine_deleted(scene: Scene) -> None:
    """One engine pod is deleted, as a drain would."""
    scene.cluster.delete("pod", scene.pods[0], namespace=scene.namespace)


def engine_paused(scene: Scene) -> None:
    """One engine stands still for some seconds, then goes on."""
    assert send(scene.pods[0], ENGINE, signal.SIGSTOP), "no engine process found"
    time.sleep(6)
    send(scene.pods[0], ENGINE, signal.SIGCONT)


def operator_killed(scene: Scene) -> None:
    """Kill -9 of the leading operator."""
    replace_pod(scene.cluster, kill_leader(scene.cluster))


def scaled_up(scene: Scene) -> None:
    """One more engine is asked for."""
    scene.replicas(3)


def scaled_down(scene: Scene) -> None:
    """One engine fewer is asked for."""
    scene.replicas(1)


def rolled_out(scene: Scene) -> None:
    """Every engine is replaced."""
    changed = _service(scene.namespace, 2)
    changed["spec"]["engine"]["maxModelLen"] = 4095
    scene.cluster.apply(changed)


ALWAYS: tuple[Event, ...] = (engine_killed, operator_killed, scaled_down)
EVENTS: tuple[Event, ...] = (
    nothing,
    *ALWAYS,
    engine_deleted,
    engine_paused,
    scaled_up,
    rolled_out,
)
ROUNDS = 5


def test_events_delay_a_purge_and_falsify_nothing(
    cluster: Cluster, tenants: dict[str, Gateway], playground: str, full: bool
) -> None:
    dice = random.Random(seed())  # noqa: S311 - moments, not secrets
    cluster.apply(manifests.policy("strict", namespace=playground, namespaceDefault=True))
    events = [*EVENTS] * ROUNDS if full else [*ALWAYS]
    violations: list[str] = []
    incomplete = 0
    for event in events:
        scene = _scene(cluster, playground)
        prompts = _cached_prompts(tenants["ada"])
        kept = _cached_prompts(tenants["bob"])
        status, seconds = _purge_during(scene, event, dice.uniform(0, 0.6))
        incomplete += status["phase"] == "Incomplete"
        violations += [
            f"{event.__name__}: {words}"
            for words in _violations(scene, tenants, status, prompts, kept)
        ]
        if seconds > 65:
            violations.append(f"{event.__name__}: L1, took {seconds:.0f} s")
    if full:
        detail = f"{len(events)} purges, {incomplete} of them Incomplete"
        record("purge-events-violations", len(violations), detail)
    assert violations == []


def test_an_engine_that_never_answers_is_named(
    cluster: Cluster, tenants: dict[str, Gateway], playground: str
) -> None:
    cluster.apply(manifests.policy("strict", namespace=playground, namespaceDefault=True))
    scene = _scene(cluster, playground)
    prompts = _cached_prompts(tenants["ada"])
    hung = scene.pods[0]
    assert send(hung, ENGINE, signal.SIGSTOP)
    try:
        name = _start(scene, deadline="8s")
        status = _ended(scene, name)
    finally:
        send(hung, ENGINE, signal.SIGCONT)
    assert status["phase"] == "Incomplete"
    evidence = evidence_of(cluster, name).decode()
    assert hung in evidence
    assert status["notCovered"]
    ready(cluster, NAME, playground, within=120)
    assert _still_cached(tenants["ada"], prompts) == 0


def _service(namespace: str, replicas: int) -> Manifest:
    return manifests.service(
        NAME,
        namespace=namespace,
        replicas=replicas,
        engine={"runner": "Simulated", "kvMemory": "256Mi", "maxModelLen": 4096},
        resources={"cpu": "50m", "memory": "512Mi"},
    )


def _scene(cluster: Cluster, namespace: str) -> Scene:
    """Two ready engines, whatever the last event left."""
    cluster.apply(_service(namespace, 2))
    eventually(lambda: leader(cluster), what="an operator that leads", within=60)

    def _two() -> bool:
        pods = cluster.find("pods", namespace=namespace, labels=f"fleetward.io/service={NAME}")
        return len(pods) == 2 and all(
            "deletionTimestamp" not in pod["metadata"]
            and condition(pod, "Ready").get("status") == "True"
            for pod in pods
        )

    eventually(_two, what="two engines", within=180)
    ready(cluster, NAME, namespace)
    pods = pods_of(cluster, NAME, namespace)
    names = sorted(pod["metadata"]["name"] for pod in pods)
    return Scene(cluster, namespace, tuple(names), frozenset(restarts_and_names(pods)))


def _cached_prompts(gateway: Gateway) -> list[str]:
    """Prompts that some engine keeps, of well over a block each."""
    prompts = [secrets.token_hex(200) for _ in range(8)]
    with ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(lambda prompt: gateway.cached_tokens(NAME, prompt), prompts * 2))
    return prompts


def _still_cached(gateway: Gateway, prompts: list[str]) -> int:
    """How many of the prompts are answered from cache, each asked once."""
    return sum(1 for prompt in prompts if gateway.cached_tokens(NAME, prompt) > 0)


def _start(scene: Scene, *, deadline: str = "1m") -> str:
    name = f"event-{secrets.token_hex(4)}"
    manifest = manifests.purge(name, tenant="ada")
    manifest["spec"]["deadline"] = deadline
    scene.cluster.apply(manifest)
    return name


def _ended(scene: Scene, name: str) -> Manifest:
    """The status with which a purge ended, and the purge's name."""
    return {**ended(scene.cluster, name, within=150), "name": name}


def _purge_during(scene: Scene, event: Event, delay_s: float) -> tuple[Manifest, float]:
    """Start a purge, let the event happen, wait for its end."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        started = time.monotonic()
        name = _start(scene)
        time.sleep(delay_s)
        happening = pool.submit(event, scene)
        status = _ended(scene, name)
        seconds = time.monotonic() - started
        happening.result(60)
    return status, seconds


def _violations(
    scene: Scene,
    tenants: dict[str, Gateway],
    status: Manifest,
    prompts: list[str],
    kept: list[str],
) -> list[str]:
    """Which of the protocol's properties do not hold, in words."""
    found = []
    evidence = evidence_of(scene.cluster, status["name"])
    report = verify_evidence(evidence, key_fingerprint=key_fingerprint(scene.cluster))
    if not report.ok:
        found.append(f"S2, evidence does not hold: {report.first_fault}")
    if status["phase"] == "Incomplete" and not status.get("notCovered"):
        found.append("S3, Incomplete without a reason")
    ready(scene.cluster, NAME, scene.namespace, within=120)
    still = _still_cached(tenants["ada"], prompts)
    if still:
        found.append(f"S1, {still} prompts answered from cache after {status['phase']}")
    lived_on = restarts_and_names(pods_of(scene.cluster, NAME, scene.namespace)) & scene.processes
    if len(lived_on) == len(scene.processes) and _still_cached(tenants["bob"], kept) == 0:
        found.append("S4, another tenant's cache went too")
    return found
