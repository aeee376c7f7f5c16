"""The finalizer on member pods while purges overlap and leaders change."""

from __future__ import annotations

from typing import Any

from tests.integration.operator.test_purges import ending, purge, two_engines_and_a_gateway
from tests.support.operator_world import World, until


async def records(world: World) -> set[str]:
    items = await world.items("ConfigMap", world.release)
    return {
        item["metadata"]["labels"]["fleetward.io/purge"]
        for item in items
        if item["metadata"]["name"].startswith("fleetward-purge-")
    }


async def held(world: World) -> list[Any]:
    return [pod["metadata"].get("finalizers", []) for pod in await world.pods("demo")]


async def test_a_new_leader_lets_go_of_no_pod_that_another_purge_needs(world: World) -> None:
    async with world.operator():
        members = await two_engines_and_a_gateway(world)
        members[0].silent = {"purge"}
        for name in ("one", "two"):
            await purge(world, name)

            async def running(name: str = name) -> bool:
                found = await world.get("CachePurge", name)
                return name in await records(world) and "floor" in found.get("status", {})

            await until(running, what="the cut")

        async def all_held() -> bool:
            return all(await held(world))

        await until(all_held, what="the finalizers")
    async with world.operator(pod="operator-1"):
        await until(lambda: asked_again(world), what="the new leader at work")
        await world.delete("CachePurge", "one")

        async def one_is_gone() -> bool:
            return await records(world) == {"two"}

        # A pass that waits for the silent member comes first, and that call has its own limit.
        await until(one_is_gone, what="the end of the first purge", within_s=120)
        assert all(await held(world))
        members[0].silent.clear()
        assert (await ending(world, "two"))["status"]["phase"] == "Completed"

        async def released() -> bool:
            return not any(await held(world))

        await until(released, what="the pods without finalizers")


async def asked_again(world: World) -> bool:
    lease = await world.get("Lease", "fleetward-operator", world.release)
    leads = str(lease["spec"]["holderIdentity"]).startswith("operator-1")
    orders = [order for member in world.members.values() for order in member.orders]
    return leads and bool(orders)
