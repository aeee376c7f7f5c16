"""Served names, and who may hold one."""

from __future__ import annotations

from tests.support.cluster_facts import condition
from tests.support.operator_world import World, until


async def test_a_service_where_none_may_be_holds_no_name(world: World) -> None:
    model = {"name": "m", "source": "package://demo"}
    await world.create(
        {
            "apiVersion": "fleetward.io/v1alpha1",
            "kind": "InferenceService",
            # The release's namespace is not among those that this operator serves.
            "metadata": {"name": "squatter", "namespace": world.release},
            "spec": {"model": model, "access": {"tenantSelector": {}}},
        }
    )
    async with world.operator():

        async def refused() -> bool:
            found = await world.get("InferenceService", "squatter", world.release)
            return condition(found, "Stalled").get("reason") == "NamespaceNotAllowed"

        await until(refused, what="the refusal")
        await world.service("demo", model=model)

        async def holds_the_name() -> bool:
            found = await world.get("InferenceService", "demo")
            return condition(found, "RouteReady").get("reason") == "NoEndpoint"

        await until(holds_the_name, what="the name")
