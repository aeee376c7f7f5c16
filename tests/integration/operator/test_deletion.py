"""Deleting services and namespaces leaves nothing behind, with the operator there or not."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from e2e.chaos.scale import is_full
from e2e.figures.record import record
from fleetward_kube import KubeError
from fleetward_operator.edges.kinds import collection_path
from fleetward_operator.handlers.app import App
from tests.integration.operator.test_ownership import PATIENT
from tests.integration.operator.test_purges import ending, purge, report
from tests.integration.operator.test_restarts import serving
from tests.support.chart import find_chart
from tests.support.operator_process import PATHS, chart_rights, grant
from tests.support.operator_world import World, until

SWEPT = (
    *("/apis/apps/v1/deployments", "/apis/apps/v1/replicasets", "/api/v1/pods"),
    *("/api/v1/services", "/api/v1/endpoints", "/api/v1/serviceaccounts", "/api/v1/configmaps"),
    *("/api/v1/secrets", "/apis/discovery.k8s.io/v1/endpointslices"),
    *("/apis/networking.k8s.io/v1/networkpolicies", "/apis/policy/v1/poddisruptionbudgets"),
)
SERVICES = 20 if is_full() else 2
POLICY = {"retention": {"idleTTL": "5m", "maxTTL": "1h"}}


async def leftovers(world: World, names: set[str], uids: set[str]) -> list[str]:
    """Whatever a service of these names or uids, or a child of it, still owns or labels."""
    found, owners = [], set(uids)
    for path in SWEPT:
        items = (await world.client.request("GET", path))["items"]
        for item in items:
            metadata = item["metadata"]
            if metadata["namespace"] != world.apps:
                continue
            labels = metadata.get("labels") or {}
            owned = {one["uid"] for one in metadata.get("ownerReferences") or ()} & owners
            labelled = labels.get("fleetward.io/service") in names
            if owned or labelled:
                owners.add(metadata["uid"])
                found.append(f"{path}/{metadata['name']}")
    return found


async def filled(world: World, count: int) -> set[str]:
    """Services with children and pods, one policy, one engine that runs; the services' uids."""
    await world.create(
        {
            "apiVersion": "fleetward.io/v1alpha1",
            "kind": "CachePolicy",
            "metadata": {"name": "careful", "namespace": world.apps},
            "spec": POLICY,
        }
    )
    names = [f"svc-{number}" for number in range(count)]
    uids = set()
    for name in names:
        created = await world.service(name, cachePolicyRef={"name": "careful"})
        uids.add(str(created["metadata"]["uid"]))

    async def all_have_pods() -> bool:
        pods = await world.items("Pod")
        return len({pod["metadata"]["labels"]["fleetward.io/service"] for pod in pods}) == count

    await until(all_have_pods, what="every service's pod", within_s=180)
    await world.run_pod((await world.pods(names[0]))[0])
    await serving(world, names[0])
    return uids


async def test_a_deleted_service_leaves_no_orphan_and_its_evidence(world: World) -> None:
    async with world.operator(timings=PATIENT):
        uids = await filled(world, SERVICES)
        names = {f"svc-{number}" for number in range(SERVICES)}
        await purge(world, "before")
        ended = await ending(world, "before")
        assert len(await leftovers(world, names, uids)) >= 8 * SERVICES
        began = time.monotonic()
        for name in names:
            await world.delete("InferenceService", name)

        async def swept() -> bool:
            return not await leftovers(world, names, uids)

        await until(swept, what="the end of everything that was theirs", within_s=120)
        took_s = time.monotonic() - began
        await world.delete("CachePolicy", "careful")
        await world.delete("CachePurge", "before")
        # Nothing is made again, and what was proved stays proved.
        await asyncio.sleep(60.0 if is_full() else 1.0)
        orphans = await leftovers(world, names, uids)
        checked = await report(world, ended)
    if is_full():
        record("service-deletion-orphans", len(orphans), f"of {SERVICES} services, {took_s:.1f} s")
    assert orphans == []
    assert (checked.ok, checked.phase) == (True, "Completed")


MODES = ["up", "down", "uninstalled"] if is_full() else ["up", "uninstalled"]


@pytest.mark.parametrize("operator", MODES)
async def test_a_namespace_full_of_services_goes(world: World, operator: str) -> None:
    await grant(world)
    async with contextlib.AsyncExitStack() as stack:
        running = await stack.enter_async_context(stoppable(world))
        await filled(world, SERVICES)
        if operator != "up":
            await running.aclose()
        if operator == "uninstalled":
            await uninstall(world)
        began = time.monotonic()
        await world.client.request("DELETE", f"/api/v1/namespaces/{world.apps}")

        async def gone() -> bool:
            try:
                await world.client.request("GET", f"/api/v1/namespaces/{world.apps}")
            except KubeError as error:
                return error.not_found
            return False

        await until(gone, what=f"the namespace's end with the operator {operator}", within_s=180)
        took_s = time.monotonic() - began
    # The kinds are still served, and hold nothing of the namespace.
    listing = await world.client.request("GET", collection_path("InferenceService"))
    assert [i for i in listing["items"] if i["metadata"]["namespace"] == world.apps] == []
    if operator == "down":
        # Whoever comes back brings nothing back.
        async with world.operator(timings=PATIENT) as app:
            await until(lambda: leads(app), what="the next operator")
        listing = await world.client.request("GET", collection_path("Deployment"))
        assert [i for i in listing["items"] if i["metadata"]["namespace"] == world.apps] == []
    if is_full():
        record(f"namespace-gone-operator-{operator}", took_s, f"{SERVICES} services in it")


async def leads(app: App) -> bool:
    return bool(app.metrics.leader._value.get() == 1.0)


@contextlib.asynccontextmanager
async def stoppable(world: World) -> AsyncIterator[contextlib.AsyncExitStack]:
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(world.operator(timings=PATIENT))
        yield stack


async def uninstall(world: World) -> None:
    """What `helm uninstall` removes: everything rendered, but for what says to be kept."""
    for manifest in chart_rights(world.release, world.keys):
        metadata = manifest["metadata"]
        path = PATHS[manifest["kind"]].format(metadata.get("namespace", ""))
        await world.client.request("DELETE", f"{path}/{metadata['name']}")
    await world.client.request("DELETE", f"/api/v1/namespaces/{world.release}")
    kinds = [m for m in find_chart().render({}) if m["kind"] == "CustomResourceDefinition"]
    assert len(kinds) == 4
    for kind in kinds:
        assert kind["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
