"""The stories that a sweep interrupts: what is there first, what somebody does, how it ends."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

from fleetward_api.evidence import verify_evidence
from fleetward_api.keys import VerifyKey
from fleetward_kube import KubeError
from fleetward_operator.edges.kinds import CHILD_KINDS, collection_path
from tests.support.cluster_facts import condition
from tests.support.failpoints_stage import Stage, wait_for
from tests.support.fake_member import FakeMember

NAME = "demo"
POLICY = "careful"
PURGE = "wipe"
TENANT = "alpha"
PURGE_ENDS = {"Completed", "Incomplete"}
RELEASE_LABEL = {"labelSelector": "app.kubernetes.io/managed-by=fleetward"}


class Story:
    """One story. It may be told again and again in one world.

    `loose` names the numbers that may grow further when the operator is interrupted; `chosen` are
    patterns of what differs each time that it is told, `told` counts the times.
    """

    name: ClassVar[str]
    loose: ClassVar[tuple[str, ...]] = ()
    chosen: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self.told = 0

    async def prepare(self, stage: Stage) -> None:
        """Bring about what is there before; the operator is at rest, or not running."""
        raise NotImplementedError

    async def act(self, stage: Stage) -> None:
        """What somebody does."""
        raise NotImplementedError

    async def meanwhile(self, stage: Stage) -> None:
        """What happens while the operator is dead, or its call late."""

    async def done(self, stage: Stage) -> bool:
        """Whether the story has ended."""
        raise NotImplementedError

    async def fault(self, stage: Stage) -> str:
        """What is wrong with an end that looks like the undisturbed one; empty: nothing."""
        del stage
        return ""


class Create(Story):
    """A new release, and a service that waits for its first operator."""

    name = "create"

    async def prepare(self, stage: Stage) -> None:
        stage.kill()
        await remove_service(stage)
        release = stage.world.release
        for path, query in (
            (collection_path("Secret", release), RELEASE_LABEL),
            (collection_path("ConfigMap", release), RELEASE_LABEL),
            (collection_path("Lease", release), {}),
        ):
            await stage.world.client.request("DELETE", path, query=query)
        await stage.world.service(NAME, scaling={"minReplicas": 0})

    async def act(self, stage: Stage) -> None:
        stage.start()

    async def done(self, stage: Stage) -> bool:
        return await is_idle(stage)


class Delete(Story):
    """A service goes as an operator starts: at once when that is struck, else in the end."""

    name = "delete"

    async def prepare(self, stage: Stage) -> None:
        if not stage.pid:
            stage.start()
        if not await stage.world.get("InferenceService", NAME):
            await stage.world.service(NAME, scaling={"minReplicas": 0})
        await wait_for(lambda: is_idle(stage), what="the service")
        await stage.settle()
        stage.kill()

    async def act(self, stage: Stage) -> None:
        stage.start()

        async def at_rest_or_struck() -> bool:
            return stage.points.sprung.is_set() or await stage.is_at_rest()

        await wait_for(at_rest_or_struck, what="an operator at rest")
        if not stage.points.sprung.is_set():
            await stage.world.delete("InferenceService", NAME)

    async def meanwhile(self, stage: Stage) -> None:
        await remove_service(stage)

    async def done(self, stage: Stage) -> bool:
        return not await parts(stage)


class Update(Story):
    """A setting of the engine becomes another one; a new template for the Deployment each time."""

    name = "update"
    chosen = (r'("maxNumSeqs": )\d+', r'("--max-num-seqs", )"\d+"')

    async def prepare(self, stage: Stage) -> None:
        if not stage.pid:
            stage.start()
        if not await stage.world.get("InferenceService", NAME):
            await stage.world.service(NAME, scaling={"minReplicas": 0})
        await wait_for(lambda: is_idle(stage), what="the service")
        await stage.settle()

    async def act(self, stage: Stage) -> None:
        self.told += 1
        patch = {"spec": {"engine": {"maxNumSeqs": self.wanted}}}
        await stage.world.patch("InferenceService", NAME, patch)

    @property
    def wanted(self) -> int:
        """The setting of this turn."""
        return 8 + self.told

    async def done(self, stage: Stage) -> bool:
        deployment = await stage.world.get("Deployment", NAME)
        args = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        given = args[args.index("--max-num-seqs") + 1] if "--max-num-seqs" in args else ""
        return given == str(self.wanted) and await is_idle(stage)


class Fleet(Story):
    """Two engines and a gateway that run, under a policy."""

    async def prepare(self, stage: Stage) -> None:
        if not stage.pid:
            stage.start()
        if not stage.world.members:
            await stage.world.create(
                {
                    "apiVersion": "fleetward.io/v1alpha1",
                    "kind": "CachePolicy",
                    "metadata": {"name": POLICY, "namespace": stage.world.apps},
                    "spec": {"retention": {"idleTTL": "10m", "maxTTL": "1h"}},
                }
            )
            await start_members(stage)
        await wait_for(lambda: in_force(stage), what="the policy in both engines")
        await stage.settle()


class PolicyChange(Fleet):
    """A time to live becomes another one, and has to reach every engine."""

    name = "policy"
    chosen = (r'("idleTTL": )"\w+"', r'("idleTtlMs": )\d+')

    async def act(self, stage: Stage) -> None:
        self.told += 1
        patch = {"spec": {"retention": {"idleTTL": f"{100 + self.told}s"}}}
        await stage.world.patch("CachePolicy", POLICY, patch)

    async def done(self, stage: Stage) -> bool:
        return await in_force(stage)


class Purge(Fleet):
    """A tenant's cache is purged; killed before it recorded the cut, an operator cuts again."""

    name = "purge"
    loose = ("floor", "generation", "Generation")

    async def prepare(self, stage: Stage) -> None:
        await super().prepare(stage)
        await stage.world.delete("CachePurge", PURGE, "")
        for member in stage.world.members.values():
            member.blocks = 3
        await stage.settle(quiet_s=1.3)

    async def act(self, stage: Stage) -> None:
        await stage.world.create(
            {
                "apiVersion": "fleetward.io/v1alpha1",
                "kind": "CachePurge",
                "metadata": {"name": PURGE},
                "spec": {"tenant": TENANT, "reason": "asked to"},
            }
        )

    async def done(self, stage: Stage) -> bool:
        found = await stage.world.get("CachePurge", PURGE, "")
        return found.get("status", {}).get("phase") in PURGE_ENDS and await in_force(stage)

    async def fault(self, stage: Stage) -> str:
        found = await stage.world.get("CachePurge", PURGE, "")
        key = VerifyKey.from_b64((await stage.world.trust())["operator.pub"])
        checked = verify_evidence(
            await stage.world.evidence(found), key_fingerprint=key.fingerprint
        )
        return "" if checked.ok else f"the evidence: {checked.summary}"


STORIES: dict[str, type[Story]] = {
    story.name: story for story in (Create, Delete, Update, PolicyChange, Purge)
}


async def is_idle(stage: Stage) -> bool:
    """Whether the service's status speaks of its present spec, and all is there."""
    found = await stage.world.get("InferenceService", NAME)
    status = found.get("status", {})
    current = status.get("observedGeneration") == found.get("metadata", {}).get("generation")
    return bool(current and condition(found, "Ready").get("reason") == "Idle")


async def in_force(stage: Stage) -> bool:
    """Whether the policy's present generation is in force, and seen to be, in every engine."""
    policy = await stage.world.get("CachePolicy", POLICY)
    service = await stage.world.get("InferenceService", NAME)
    told = service.get("status", {}).get("cachePolicy", {})
    return bool(
        policy.get("status", {}).get("enforcedServices") == 1
        and told.get("generation") == policy["metadata"]["generation"]
        and told.get("ackedReplicas") == 2
        and condition(service, "Ready").get("reason") == "Serving"
        and condition(service, "IsolationVerified").get("reason") == "Verified"
    )


async def parts(stage: Stage) -> list[str]:
    """The service and whatever of it is left."""
    found = [NAME] if await stage.world.get("InferenceService", NAME) else []
    for kind in CHILD_KINDS:
        found += [
            f"{kind}/{item['metadata']['name']}"
            for item in await stage.world.items(kind)
            if (item["metadata"].get("labels") or {}).get("fleetward.io/service") == NAME
        ]
    return found


async def remove_service(stage: Stage) -> None:
    """Delete the service and wait for the end of its children."""
    await stage.world.delete("InferenceService", NAME)

    async def gone() -> bool:
        return not await parts(stage)

    await wait_for(gone, what="the end of the children")


async def start_members(stage: Stage) -> list[FakeMember]:
    """The service's two pods and a gateway, as if a kubelet ran them."""
    world = stage.world
    await world.service(NAME, scaling={"minReplicas": 2}, cachePolicyRef={"name": POLICY})
    pods: list[dict[str, Any]] = []

    async def both() -> bool:
        pods[:] = await world.pods(NAME)
        return len(pods) == 2

    await wait_for(both, what="two pods")
    with contextlib.suppress(KubeError):
        await world.gateway_pod()
    pods.append(await world.get("Pod", "gateway-0", world.release))
    return [await world.run_pod(pod) for pod in pods]
