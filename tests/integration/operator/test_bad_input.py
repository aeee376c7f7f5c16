"""What is wrong with a manifest, or around it, is said where its author looks."""

from __future__ import annotations

from tests.integration.operator.test_services import policy, reason_of
from tests.support.cluster_facts import condition, secret
from tests.support.operator_world import World, until


async def test_a_missing_policy_is_not_enforced_and_says_what_to_do(world: World) -> None:
    async with world.operator():
        await world.service("demo", cachePolicyRef={"name": "absent"})

        async def stalled() -> bool:
            return await reason_of(world, "demo", "Stalled") == "True/PolicyNotFound"

        await until(stalled, what="Stalled")
        service = await world.get("InferenceService", "demo")
        assert "CachePolicy absent does not exist" in service["status"]["message"]
        await world.create(policy(world, "absent", idle="5m"))
        pods = await until(lambda: world.pods("demo"), what="the pod")
        await world.run_pod(pods[0])

        async def ready() -> bool:
            return await reason_of(world, "demo") == "True/Serving"

        await until(ready, what="Ready once the policy exists")


async def test_an_object_of_someone_else_is_not_taken_over(world: World) -> None:
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "demo", "namespace": world.apps},
        "spec": {"ports": [{"port": 80}]},
    }
    await world.create(foreign)
    async with world.operator():
        await world.service("demo")

        async def stalled() -> bool:
            return await reason_of(world, "demo", "Stalled") == "True/ChildForeign"

        await until(stalled, what="Stalled")
        kept = await world.get("Service", "demo")
        assert kept["spec"]["ports"][0]["port"] == 80
        assert "ownerReferences" not in kept["metadata"]


async def test_of_two_services_with_one_name_the_older_keeps_it(world: World) -> None:
    async with world.operator():
        await world.service("older", model={"name": "m", "source": "package://demo"})
        await until(lambda: world.pods("older"), what="the older's pod")
        # Creation times have whole seconds; the uid decides within one.
        second = await world.service("newer", model={"name": "m", "source": "package://demo"})
        first = await world.get("InferenceService", "older")
        key = ("creationTimestamp", "uid")
        loser = max((first, second), key=lambda s: [s["metadata"][k] for k in key])["metadata"]

        async def refused() -> bool:
            return await reason_of(world, loser["name"], "RouteReady") == "False/NameTaken"

        await until(refused, what="the refusal")
        winner = "older" if loser["name"] == "newer" else "newer"

        async def kept() -> bool:
            return await reason_of(world, winner, "RouteReady") == "False/NoEndpoint"

        await until(kept, what="the older's name")
        await world.delete("InferenceService", winner)

        async def freed() -> bool:
            return await reason_of(world, loser["name"], "RouteReady") == "False/NoEndpoint"

        await until(freed, what="the name")


async def test_an_image_outside_the_allow_list_is_refused_and_nothing_is_made(
    world: World,
) -> None:
    async with world.operator():
        await world.service("demo", engine={"runner": "Simulated", "image": "evil.test/x:1"})

        async def refused() -> bool:
            return await reason_of(world, "demo", "Stalled") == "True/ImageNotAllowed"

        await until(refused, what="the refusal")
        assert await world.get("Deployment", "demo") == {}


async def test_a_service_in_a_forbidden_namespace_is_refused(world: World) -> None:
    async with world.operator():
        manifest = {
            "apiVersion": "fleetward.io/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": "demo", "namespace": world.keys},
            "spec": {"model": {"name": "demo", "source": "package://demo"}},
        }
        await world.create(manifest)

        async def refused() -> bool:
            found = await world.get("InferenceService", "demo", world.keys)
            return condition(found, "Ready").get("reason") == "NamespaceNotAllowed"

        await until(refused, what="the refusal")


async def test_the_kubelets_and_schedulers_words_reach_the_status(world: World) -> None:
    async with world.operator():
        await world.service("demo")
        pods = await until(lambda: world.pods("demo"), what="the pod")
        words = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
        unscheduled = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": words,
        }
        await world.say(pods[0], {"phase": "Pending", "conditions": [unscheduled]})

        async def told(reason: str, text: str) -> bool:
            found = await world.get("InferenceService", "demo")
            same = condition(found, "Stalled").get("reason") == reason
            return same and text in found["status"]["message"]

        await until(lambda: told("Unschedulable", words), what="the scheduler's words")
        waiting = {"reason": "ImagePullBackOff", "message": "not found: no such image"}
        container = {
            "name": "engine",
            "image": "x",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"waiting": waiting},
        }
        scheduled = {"type": "PodScheduled", "status": "True"}
        await world.say(
            pods[0],
            {"phase": "Pending", "conditions": [scheduled], "containerStatuses": [container]},
        )
        await until(lambda: told("ImagePullFailed", "no such image"), what="the kubelet's words")
        last = {"exitCode": 3, "reason": "Error", "message": "digest does not match"}
        crashed = {
            **container,
            "restartCount": 2,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": last},
        }
        await world.say(
            pods[0],
            {"phase": "Running", "conditions": [scheduled], "containerStatuses": [crashed]},
        )
        await until(lambda: told("EngineCrashing", "digest does not match"), what="last words")


async def test_a_tenant_whose_secret_vanishes_says_so(world: World) -> None:
    async with world.operator():
        await world.create(secret("alpha-key", world.keys, key="sk-0123456789abcdef"))
        tenant = {
            "apiVersion": "fleetward.io/v1alpha1",
            "kind": "Tenant",
            "metadata": {"name": "alpha"},
            "spec": {"apiKeys": [{"name": "main", "secretRef": {"name": "alpha-key"}}]},
        }
        await world.create(tenant)

        async def keys_are(reason: str) -> bool:
            found = await world.get("Tenant", "alpha")
            return condition(found, "KeysReady").get("reason") == reason

        await until(lambda: keys_are("AllKeysWork"), what="the key")
        await world.delete("Secret", "alpha-key", world.keys)
        await until(lambda: keys_are("KeysMissing"), what="the missing key")
        found = await world.get("Tenant", "alpha")
        assert f"Secret alpha-key is not in namespace {world.keys}" in found["status"]["message"]


async def test_a_quota_that_forbids_pods_is_told_in_its_own_words(world: World) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none", "namespace": world.apps},
        "spec": {"hard": {"pods": "0", "services": "0"}},
    }
    path = f"/api/v1/namespaces/{world.apps}/resourcequotas"
    await world.client.request("POST", path, body=quota)

    async def counted() -> bool:
        found = await world.client.request("GET", f"{path}/none")
        return "used" in found.get("status", {})

    await until(counted, what="the quota")
    async with world.operator():
        await world.service("demo")

        async def told() -> bool:
            found = await world.get("InferenceService", "demo")
            message = found.get("status", {}).get("message", "")
            return await reason_of(world, "demo", "Stalled") == "True/ChildRefused" and (
                "exceeded quota: none" in message
            )

        await until(told, what="the quota's words")
        assert await world.get("Deployment", "demo")
