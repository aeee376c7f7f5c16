"""The operator at rest and under kill -9: silent when idle, convergent after any death."""

from __future__ import annotations

import contextlib
import random
import time
from datetime import UTC, datetime

from e2e.chaos.scale import seed
from e2e.figures.record import record
from e2e.tests.support import manifests
from e2e.tests.support.audit import writes
from e2e.tests.support.evidence import RELEASE
from e2e.tests.support.kubectl import Cluster, NeverHappened, eventually
from e2e.tests.support.leader import kill_leader, leader, replace_pod
from e2e.tests.support.services import orphans_and_duplicates, ready, settled

_OURS = f"system:serviceaccount:{RELEASE}:"


def test_idle_services_cause_no_writes(cluster: Cluster, playground: str, full: bool) -> None:
    services, seconds = (20, 300) if full else (5, 45)
    names = [f"idle-{index}" for index in range(services)]
    cluster.apply(*(manifests.service(name, namespace=playground) for name in names))
    for name in names:
        ready(cluster, name, playground, within=300)
    time.sleep(35)  # statuses may carry live numbers for up to one rate window
    since = datetime.now(UTC)
    time.sleep(seconds)
    ours = list(writes(cluster.audit_log, users=_OURS, since=since, until=datetime.now(UTC)))
    seen = [write for write in ours if write.resource != "leases"]
    assert len(seen) < len(ours), "the audit log does not see our lease: the count proves nothing"
    if full:
        record("idle-writes", len(seen), f"{services} services, {seconds} s, audit log")
    assert seen == []


def test_kills_at_random_moments_converge(cluster: Cluster, playground: str, full: bool) -> None:
    kills = 20 if full else 2
    dice = random.Random(seed())  # noqa: S311 (moments, not secrets)
    cluster.apply(*(manifests.service(f"k-{n}", namespace=playground) for n in ("upd", "del-0")))
    ready(cluster, "k-upd", playground)
    survived, slowest, wrong = 0, 0.0, 0
    for turn in range(kills):
        _disturb(cluster, playground, turn)
        time.sleep(dice.uniform(0, 1.5))
        dead = kill_leader(cluster)
        killed = time.monotonic()
        survived += _converges(cluster, playground, turn)
        slowest = max(slowest, time.monotonic() - killed)
        wrong += _wrong(cluster, playground)
        replace_pod(cluster, dead)
        eventually(lambda: leader(cluster) not in {"", dead}, what="a successor", within=60)  # noqa: B023
    if full:
        record("kills-survived", survived, "kill -9 of the leader's process")
        record(
            "kills-slowest-seconds", round(slowest, 1), "from the kill until every pod was Ready"
        )
        record("kills-orphans-duplicates", wrong)
    assert (survived, wrong) == (kills, 0)


def _wrong(cluster: Cluster, namespace: str) -> int:
    """Orphans and duplicates that the garbage collector has not taken within half a minute."""
    with contextlib.suppress(NeverHappened):
        eventually(
            lambda: not orphans_and_duplicates(cluster, namespace), what="no orphan", within=30
        )
    return len(orphans_and_duplicates(cluster, namespace))


def _disturb(cluster: Cluster, namespace: str, turn: int) -> None:
    """One create, one update, one delete, all at once."""
    update = manifests.service("k-upd", namespace=namespace, rollout={"maxSurge": turn % 2 + 1})
    update["spec"]["model"]["aliases"] = [f"k-alias-{turn}"]
    cluster.apply(manifests.service(f"k-del-{turn + 1}", namespace=namespace), update)
    cluster.delete("fsvc", f"k-del-{turn}", namespace=namespace)


def _converges(cluster: Cluster, namespace: str, turn: int) -> bool:
    def _as_asked() -> bool:
        gone = not cluster.exists("deployment", f"k-del-{turn}", namespace=namespace)
        up = all(settled(cluster, name, namespace) for name in ("k-upd", f"k-del-{turn + 1}"))
        return gone and up

    try:
        eventually(_as_asked, what=f"turn {turn} converged", within=60)
    except NeverHappened:
        return False
    return True
