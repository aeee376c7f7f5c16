"""Floors that are lost while gateways hold a later version of them."""

from __future__ import annotations

from tests.integration.operator.test_purges import ending, purge
from tests.support.operator_world import World, until


async def test_a_gateway_ahead_of_new_floors_is_caught_up_with(world: World) -> None:
    tenant = {"name": "alpha"}
    await world.create(
        {"apiVersion": "fleetward.io/v1alpha1", "kind": "Tenant", "metadata": tenant, "spec": {}}
    )
    async with world.operator():

        async def trust() -> bool:
            return bool(await world.get("ConfigMap", "fleetward-trust", world.release))

        await until(trust, what="the public keys")
        gateway = await world.run_pod(await world.gateway_pod())
        for number in range(3):
            await purge(world, f"wipe-{number}")
            assert (await ending(world, f"wipe-{number}"))["status"]["phase"] == "Completed"
    await world.delete("ConfigMap", "fleetward-floors", world.release)
    # No service is left to tell what the floors were, and this operator never saw them.
    async with world.operator(pod="operator-1"):
        held = gateway.bundle
        assert held is not None

        async def caught_up() -> bool:
            return gateway.bundle is not held

        await until(caught_up, what="a bundle above the one that the gateway holds")
        assert gateway.bundle is not None
        assert gateway.bundle.generation > held.generation
        assert gateway.bundle.floors.tenants["alpha"] >= held.floors.tenants["alpha"]
        await purge(world, "again")
        found = await ending(world, "again")
        assert found["status"]["phase"] == "Completed", found["status"]
        assert found["status"]["floor"] > held.floors.tenants["alpha"]
