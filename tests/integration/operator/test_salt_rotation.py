"""A policy's salt rotation, from the epoch's Secret to every engine and into the statuses."""

from __future__ import annotations

import datetime as dt
from typing import Any

from fleetward_api.bundle import PolicyBundle
from fleetward_api.conditions import format_time
from fleetward_operator.edges.release_keys import EPOCH_SECRET, ROTATED_AT
from tests.support.cluster_facts import condition
from tests.support.operator_world import World, until

WITHIN_S = 120


async def two_engines(world: World) -> None:
    await world.create(
        {
            "apiVersion": "fleetward.io/v1alpha1",
            "kind": "CachePolicy",
            "metadata": {"name": "rotating", "namespace": world.apps},
            "spec": {"namespaceDefault": True, "saltRotation": "1h"},
        }
    )
    await world.service("demo", scaling={"minReplicas": 2})

    async def both() -> list[dict[str, Any]]:
        pods = await world.pods("demo")
        return pods if len(pods) == 2 else []

    for pod in await until(both, within_s=WITHIN_S, what="two pods"):
        await world.run_pod(pod)


async def test_an_epoch_past_its_time_is_replaced_once_and_every_engine_follows(
    world: World,
) -> None:
    async def all_at(epoch: int) -> bool:
        found = [member.bundle for member in world.members.values()]
        bundles = [bundle for bundle in found if isinstance(bundle, PolicyBundle)]
        enforced = condition(await world.get("InferenceService", "demo"), "CachePolicyEnforced")
        return (
            len(bundles) == 2
            and all(bundle.epoch == epoch for bundle in bundles)
            and enforced.get("status") == "True"
        )

    async def told() -> dict[str, Any]:
        status = (await world.get("CachePolicy", "rotating")).get("status", {})
        return dict(status.get("saltRotation", {}))

    async with world.operator():
        await two_engines(world)
        await until(lambda: all_at(1), within_s=WITHIN_S, what="the first bundles")
        assert (await until(told, within_s=WITHIN_S, what="the first epoch"))["epoch"] == 1
        pods = [pod["metadata"]["uid"] for pod in await world.pods("demo")]
    first = (await world.get("Secret", EPOCH_SECRET, world.release))["data"]
    past = format_time(dt.datetime.now(dt.UTC) - dt.timedelta(hours=2))
    await world.patch(
        "Secret",
        EPOCH_SECRET,
        {"metadata": {"annotations": {ROTATED_AT: past}}},
        namespace=world.release,
    )
    async with world.operator(pod="operator-1"):
        await until(lambda: all_at(2), within_s=WITHIN_S, what="the next epoch everywhere")

        async def second() -> bool:
            return bool((await told())["epoch"] == 2)

        await until(second, within_s=WITHIN_S, what="the next epoch in the policy's status")
        events = [event["reason"] for event in await world.items("Event")]
        assert events.count("SaltRotated") == 1
        kept = await world.get("Secret", EPOCH_SECRET, world.release)
        assert (await told())["rotatedAt"] == kept["metadata"]["annotations"][ROTATED_AT]
        assert kept["data"]["secret"] != first["secret"]
        assert [pod["metadata"]["uid"] for pod in await world.pods("demo")] == pods
