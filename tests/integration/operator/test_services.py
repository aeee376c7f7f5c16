"""A service from its manifest to Ready, on a real API server."""

from __future__ import annotations

from typing import Any

from tests.support.cluster_facts import condition
from tests.support.operator_world import World, until

CHILDREN = (
    ("Deployment", "demo"),
    ("Service", "demo"),
    ("ServiceAccount", "demo"),
    ("PodDisruptionBudget", "demo"),
    ("NetworkPolicy", "demo"),
    ("ConfigMap", "demo-trust"),
    ("ConfigMap", "demo-bundle"),
)


async def reason_of(world: World, name: str, kind: str = "Ready") -> str:
    found = condition(await world.get("InferenceService", name), kind)
    return f"{found.get('status')}/{found.get('reason')}"


async def test_a_service_gets_its_children_its_policy_and_becomes_ready(world: World) -> None:
    async with world.operator():
        created = await world.service("demo")
        pods = await until(lambda: world.pods("demo"), what="the pod")
        for kind, name in CHILDREN:
            child = await world.get(kind, name)
            owner = child["metadata"]["ownerReferences"][0]
            assert (owner["uid"], owner["controller"]) == (created["metadata"]["uid"], True)
        member = await world.run_pod(pods[0])

        async def ready() -> bool:
            return await reason_of(world, "demo") == "True/Serving"

        await until(ready, what="Ready")
        service = await world.get("InferenceService", "demo")
        status = service["status"]
        assert status["observedGeneration"] == service["metadata"]["generation"]
        assert status["replicaSummary"] == "1/1"
        assert status["selector"] == (
            "app.kubernetes.io/component=engine,fleetward.io/service=demo"
        )
        assert member.bundle is not None
        assert member.bundle.generation == status["cachePolicy"]["bundleGeneration"]
        assert await reason_of(world, "demo", "CachePolicyEnforced") == "True/AllAcked"
        assert await reason_of(world, "demo", "ModelLoaded") == "True/Simulated"


async def test_a_policy_change_reaches_engines_and_restarts_none(world: World) -> None:
    async with world.operator():
        await world.create(policy(world, "strict", idle="5m"))
        await world.service("demo", cachePolicyRef={"name": "strict"})
        pods = await until(lambda: world.pods("demo"), what="the pod")
        member = await world.run_pod(pods[0])

        async def idle_ttl_is(milliseconds: int) -> bool:
            bundle = member.bundle
            return bundle is not None and bundle.retention.idle_ttl_ms == milliseconds  # type: ignore[union-attr]

        await until(lambda: idle_ttl_is(300_000), what="the first bundle")
        before = await world.get("Deployment", "demo")
        first = member.bundle
        assert first is not None
        await world.patch("CachePolicy", "strict", {"spec": {"retention": {"idleTTL": "2m"}}})
        await until(lambda: idle_ttl_is(120_000), what="the second bundle")

        async def enforced() -> bool:
            status = (await world.get("InferenceService", "demo"))["status"]
            return (
                status["cachePolicy"].get("generation") == 2
                and await reason_of(world, "demo", "CachePolicyEnforced") == "True/AllAcked"
            )

        await until(enforced, what="CachePolicyEnforced")
        assert member.bundle is not None
        assert member.bundle.generation > first.generation
        after = await world.get("Deployment", "demo")
        assert after["metadata"]["generation"] == before["metadata"]["generation"]

        async def in_use() -> bool:
            found = await world.get("CachePolicy", "strict")
            return condition(found, "Ready").get("reason") == "InUse"

        await until(in_use, what="the policy's own status")


async def test_an_edit_of_an_owned_field_is_reverted_and_named(world: World) -> None:
    async with world.operator():
        await world.service("demo")
        await until(lambda: world.pods("demo"), what="the pod")
        await world.patch(
            "Deployment",
            "demo",
            {"metadata": {"labels": {"team": "blue"}}, "spec": {"replicas": 3}},
            manager="someone",
        )

        async def reverted() -> bool:
            found = await world.get("Deployment", "demo")
            return bool(found["spec"]["replicas"] == 1)

        await until(reverted, what="the revert")
        found = await world.get("Deployment", "demo")
        assert found["metadata"]["labels"]["team"] == "blue"

        async def told() -> list[dict[str, Any]]:
            return [e for e in await world.items("Event") if e["reason"] == "DriftReverted"]

        event = (await until(told, what="the Event"))[0]
        assert event["message"] == (
            "Put back spec.replicas of Deployment demo, which someone had changed."
        )


async def test_a_deleted_child_comes_back(world: World) -> None:
    async with world.operator():
        await world.service("demo")
        await until(lambda: world.get("NetworkPolicy", "demo"), what="the child")
        first = await world.get("NetworkPolicy", "demo")
        await world.delete("NetworkPolicy", "demo")

        async def back() -> bool:
            found = await world.get("NetworkPolicy", "demo")
            return bool(found) and found["metadata"]["uid"] != first["metadata"]["uid"]

        await until(back, what="the child again")


async def test_an_external_scaler_sets_the_replicas_and_zero_is_idle(world: World) -> None:
    async with world.operator():
        await world.service("demo", scaling={"mode": "External"}, replicas=2)

        async def pods_are(count: int) -> bool:
            return len(await world.pods("demo")) == count

        await until(lambda: pods_are(2), what="two pods")
        await world.client.request(
            "PATCH",
            f"/apis/fleetward.io/v1alpha1/namespaces/{world.apps}/inferenceservices/demo/scale",
            body={"spec": {"replicas": 0}},
            content_type="application/merge-patch+json",
        )
        await until(lambda: pods_are(0), what="no pod")

        async def idle() -> bool:
            return await reason_of(world, "demo") == "True/Idle"

        await until(idle, what="Idle")


def policy(world: World, name: str, *, idle: str) -> dict[str, Any]:
    return {
        "apiVersion": "fleetward.io/v1alpha1",
        "kind": "CachePolicy",
        "metadata": {"name": name, "namespace": world.apps},
        "spec": {"retention": {"idleTTL": idle, "maxTTL": "1h"}},
    }
