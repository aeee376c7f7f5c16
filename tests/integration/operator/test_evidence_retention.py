"""Evidence past its retention goes on a real API server; what stays can still be verified."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import time

from fleetward_operator.handlers.app import App
from fleetward_operator.handlers.context import Operator
from fleetward_operator.handlers.evidence import PERIOD_S, reconcile_evidence
from tests.integration.operator.test_purges import ending, purge, report
from tests.support.operator_world import World, until

HEAD = "fleetward-evidence-head"


def later(op: Operator, *, hours: float, looks: int = 0) -> None:
    """Set the operator's clocks: hours after today, so many looks after the start."""
    ahead = dt.timedelta(hours=hours)
    op.clock = dataclasses.replace(
        op.clock,
        now=lambda: dt.datetime.now(dt.UTC) + ahead,
        monotonic=lambda: time.monotonic() + looks * PERIOD_S,
    )


async def evidence_of(world: World) -> set[str]:
    labels = [one["metadata"].get("labels") or {} for one in await world.items(*in_release(world))]
    return {one["fleetward.io/purge"] for one in labels if "fleetward.io/purge-uid" in one}


def in_release(world: World) -> tuple[str, str]:
    return ("ConfigMap", world.release)


async def leading(app: App) -> Operator:
    async def operator() -> Operator | None:
        return app.operator

    found: Operator = await until(operator, what="the lease")
    return found


async def test_the_oldest_evidence_goes_after_the_longest_retain_of_any_policy(
    world: World,
) -> None:
    for kind, name, spec in (
        ("Tenant", "alpha", {}),
        ("CachePolicy", "short", {"deletion": {"evidence": {"retain": "1h"}}}),
        ("CachePolicy", "long", {"deletion": {"evidence": {"retain": "48h"}}}),
    ):
        metadata = {"name": name} if kind == "Tenant" else {"name": name, "namespace": world.apps}
        api_version = "fleetward.io/v1alpha1"
        await world.create(
            {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
        )
    async with world.operator() as app:
        op = await leading(app)
        for name in ("one", "two", "three"):
            await purge(world, name)
            assert (await ending(world, name))["status"]["phase"] == "Completed"

        async def seen() -> bool:
            return len(op.store.keys("CachePolicy")) == 2 and await evidence_of(world) == {
                "one", "two", "three",
            }  # fmt: skip

        await until(seen, what="what the test made")
        later(op, hours=47, looks=1)
        await reconcile_evidence(op, "")
        later(op, hours=47, looks=2)
        await reconcile_evidence(op, "")
        assert await evidence_of(world) == {"one", "two", "three"}, "a policy keeps it for 48h"
        await world.delete("CachePolicy", "long")

        async def gone() -> bool:
            return len(op.store.keys("CachePolicy")) == 1

        await until(gone, what="the end of a policy")
        later(op, hours=47, looks=3)
        await reconcile_evidence(op, "")
        assert len(await evidence_of(world)) == 3, "the policy may come back at once"
        later(op, hours=47, looks=4)
        await reconcile_evidence(op, "")

        assert await evidence_of(world) == {"three"}
        kept = await ending(world, "three")
        assert (await report(world, kept)).ok
        first = json.loads((await world.evidence(kept)).split(b"\n", 1)[0])
        head = (await world.get("ConfigMap", HEAD, world.release))["data"]
        assert json.loads(head["removed.json"]) == first["payload"]["body"]["previous"]
        assert json.loads(head["removed.json"])["sequence"] == 2
        events = [one["reason"] for one in await world.items("Event", world.release)]
        assert events.count("EvidenceExpired") == 1

        await purge(world, "four")
        after = await ending(world, "four")
        assert (await report(world, after)).ok
        head = (await world.get("ConfigMap", HEAD, world.release))["data"]
        assert json.loads(head["head.json"])["sequence"] == 4
        assert json.loads(head["removed.json"])["sequence"] == 2
