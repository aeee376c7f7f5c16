"""A deleted Tenant goes when its cache is purged, and never waits for ever."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from e2e.chaos.scale import is_full
from e2e.cluster.apiserver import ApiServer
from e2e.cluster.ports import free_port
from e2e.figures.record import record
from fleetward_api.resources.metadata import ObjectMeta
from fleetward_operator.core.tenant_deletion import BREAK_GLASS, FINALIZER
from fleetward_operator.settings import Timings
from tests.integration.operator.test_purges import report
from tests.support.cluster_facts import condition
from tests.support.fake_member import FakeMember
from tests.support.operator_process import grant, start_process
from tests.support.operator_world import World, until

QUICK = Timings(lease_retry=0.2, member_timeout=1.0, tenant_purge=3.0)


def tenant(name: str = "acme") -> dict[str, Any]:
    return {
        "apiVersion": "fleetward.io/v1alpha1",
        "kind": "Tenant",
        "metadata": {"name": name},
        "spec": {"apiKeys": [{"name": "a", "secretRef": {"name": "acme"}}]},
    }


async def one_engine(world: World) -> FakeMember:
    await world.service("demo")
    pods = await until(lambda: world.pods("demo"), what="the pod")
    member = await world.run_pod(pods[0])

    async def has_a_bundle() -> bool:
        return member.bundle is not None

    await until(has_a_bundle, what="the first bundle")
    return member


async def held(world: World, name: str = "acme") -> dict[str, Any]:
    async def finalizer() -> dict[str, Any]:
        found = await world.get("Tenant", name)
        return found if FINALIZER in found.get("metadata", {}).get("finalizers", ()) else {}

    found: dict[str, Any] = await until(finalizer, what="the finalizer")
    return found


async def gone(world: World, name: str = "acme") -> None:
    async def absent() -> bool:
        return not await world.get("Tenant", name)

    await until(absent, what=f"the end of {name}", within_s=60)


def uid_of(item: dict[str, Any]) -> str:
    return str(item["metadata"]["uid"])


async def told(world: World, tenant_uid: str, reason: str) -> str:
    async def message() -> str:
        events = await world.items("Event", "default")
        about = [e for e in events if e["involvedObject"].get("uid") == tenant_uid]
        return next((str(e["message"]) for e in about if e["reason"] == reason), "")

    return str(await until(message, what=reason))


async def test_its_cache_is_purged_first_and_the_evidence_stays(world: World) -> None:
    async with world.operator():
        member = await one_engine(world)
        member.blocks = 7
        await world.create(tenant())
        first = await held(world)
        await world.delete("Tenant", "acme")
        await gone(world)
        (purge,) = await world.items("CachePurge", "")
        assert purge["spec"]["tenant"] == "acme"
        assert first["metadata"]["uid"] in purge["spec"]["reason"]
        assert (purge["status"]["phase"], purge["status"]["blocks"]) == ("Completed", 7)
        assert (await report(world, purge)).ok
        assert purge["status"]["evidenceDigest"] in await told(world, uid_of(first), "TenantPurged")
        floor = purge["status"]["floor"]
        # The name used again: another uid in the cache root, and no floor goes back.
        await world.create(tenant())
        again = await held(world)
        assert again["metadata"]["uid"] != first["metadata"]["uid"]
        await world.delete("Tenant", "acme")
        await gone(world)
        purges = await world.items("CachePurge", "")
        assert sorted(one["status"]["floor"] for one in purges) == [floor, floor + 1]
        assert len(member.orders) == 2


async def test_tenants_deleted_together_each_leave_evidence(world: World) -> None:
    names = [f"tenant-{number}" for number in range(20 if is_full() else 3)]
    async with world.operator():
        member = await one_engine(world)
        member.blocks = 1
        for name in names:
            await world.create(tenant(name))
        for name in names:
            await held(world, name)
        began = time.monotonic()
        for name in names:
            await world.delete("Tenant", name)
        for name in names:
            await gone(world, name)
        took_s = time.monotonic() - began
        purges = await world.items("CachePurge", "")
        proved = {
            one["spec"]["tenant"]
            for one in purges
            if one["status"]["phase"] == "Completed" and (await report(world, one)).ok
        }
    if is_full():
        record("tenant-deletion", took_s, f"{len(names)} at once, one engine")
        record("tenant-deletion-unproved", len(set(names) - proved), f"of {len(names)}")
    assert proved == set(names)
    assert len(purges) == len(names)


async def test_a_silent_member_holds_it_no_longer_than_the_deadline(world: World) -> None:
    async with world.operator(timings=QUICK):
        member = await one_engine(world)
        member.silent = {"purge"}
        await world.create(tenant())
        found = await held(world)
        await world.delete("Tenant", "acme")

        async def says_so() -> bool:
            ready = condition(await world.get("Tenant", "acme"), "Ready")
            return ready.get("reason") == "Deleting" and "has not ended" in ready["message"]

        await until(says_so, what="the Tenant's own words")
        await gone(world)
        (purge,) = await world.items("CachePurge", "")
        assert purge["status"]["phase"] == "Incomplete"
        assert purge["status"]["notCovered"]
        message = await told(world, uid_of(found), "TenantPurgeIncomplete")
        assert purge["metadata"]["name"] in message
        # The evidence says what it could not show, and is as genuine as any.
        checked = await report(world, purge)
        assert (checked.ok, checked.phase) == (True, "Incomplete")


async def test_the_annotation_breaks_the_glass_while_its_purge_still_runs(world: World) -> None:
    async with world.operator():
        member = await one_engine(world)
        member.silent = {"purge"}
        await world.create(tenant())
        found = await held(world)
        await world.delete("Tenant", "acme")

        async def runs() -> bool:
            purges = await world.items("CachePurge", "")
            return bool(purges) and "floor" in purges[0].get("status", {})

        await until(runs, what="the purge")
        assert await world.get("Tenant", "acme")
        note = {"metadata": {"annotations": {BREAK_GLASS: "the cluster goes away"}}}
        await world.patch("Tenant", "acme", note)
        await gone(world)
        assert "the cluster goes away" in await told(world, uid_of(found), "TenantReleased")


async def test_a_finalizer_that_came_with_a_copied_manifest_goes_too(world: World) -> None:
    async with world.operator():
        await world.create(tenant())
        await held(world)
        # As `kubectl get -o yaml | kubectl apply` does: now somebody else owns it as well.
        copied = {"metadata": {"name": "acme", "finalizers": [FINALIZER, "other.test/kept"]}}
        manifest = {"apiVersion": "fleetward.io/v1alpha1", "kind": "Tenant", **copied}
        await world.client.request(
            "PATCH",
            "/apis/fleetward.io/v1alpha1/tenants/acme",
            query={"fieldManager": "gitops", "force": "true"},
            body=manifest,
            content_type="application/apply-patch+yaml",
        )
        await world.delete("Tenant", "acme")

        async def only_the_others() -> bool:
            found = await world.get("Tenant", "acme")
            return bool(found["metadata"].get("finalizers") == ["other.test/kept"])

        await until(only_the_others, what="our finalizer's end")
        await world.let_go("Tenant", "acme")
        await gone(world)


async def test_deleted_while_nobody_led_it_is_purged_by_the_next_with_the_charts_rights(
    world: World, api_server: ApiServer, tmp_path: Path
) -> None:
    await grant(world)
    account = api_server.kubeconfig_for_service_account(world.release, "fleetward-operator")

    def start() -> Any:
        ports = (free_port(), free_port())
        return start_process(world, kubeconfig=account, ports=ports, log=tmp_path / "log")

    operator = start()
    await world.create(tenant())
    await held(world)
    operator.kill()
    await world.delete("Tenant", "acme")
    assert (await world.get("Tenant", "acme"))["metadata"]["deletionTimestamp"]
    operator = start()
    try:
        await gone(world)
        (purge,) = await world.items("CachePurge", "")
        metadata = ObjectMeta.model_validate(purge["metadata"])
        assert metadata.name.startswith("acme-deleted-")
        assert purge["status"]["phase"] == "Completed"
    finally:
        operator.stop()
    log = (tmp_path / "log").read_text()
    assert "Forbidden" not in log, log
    assert "Traceback" not in log, log
