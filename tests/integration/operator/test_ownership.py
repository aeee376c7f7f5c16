"""What others add to children stays; what they change of ours is put back, and they are named."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from e2e.chaos.scale import is_full
from e2e.cluster.apiserver import ApiServer
from e2e.figures.record import record
from fleetward_kube import KubeError
from fleetward_operator.core.contest import AT_ONCE, LONGEST_WAIT_S, TELL_EVERY_S
from fleetward_operator.edges.executor import ATTEMPTS
from fleetward_operator.edges.kinds import object_path
from fleetward_operator.handlers.app import App
from fleetward_operator.settings import Timings
from tests.integration.operator.test_restarts import serving, settled
from tests.integration.operator.test_services import CHILDREN
from tests.support.cluster_facts import writes_in
from tests.support.operator_world import World, until

Change = Callable[[dict[str, Any]], Any]
HASH = "fleetward.io/desired-hash"
CHILD_RESOURCES = {
    "configmaps",
    "deployments",
    "networkpolicies",
    "poddisruptionbudgets",
    "serviceaccounts",
    "services",
}
STRATEGIC = "application/strategic-merge-patch+json"

# A busy machine must not cost the lease: these tests are about something else.
PATIENT = Timings(lease_retry=2.0, member_timeout=3.0)


async def own_account(world: World, api: ApiServer) -> None:
    world.kubeconfig = api.kubeconfig_for_user("operator", groups=("system:masters",))


async def running_service(world: World) -> None:
    await world.service("demo")
    pods = await until(lambda: world.pods("demo"), what="the pod")
    await world.run_pod(pods[0])
    await serving(world, "demo")


async def edit(world: World, kind: str, name: str, change: Change, *, manager: str) -> None:
    """As `kubectl edit` does: read, change, update on condition."""
    while True:
        found = await world.get(kind, name)
        change(found)
        try:
            await world.client.request(
                "PUT",
                object_path(kind, world.apps, name),
                query={"fieldManager": manager},
                body=found,
            )
        except KubeError as error:
            if not error.conflict:
                raise
        else:
            return


async def messages(world: World, reason: str) -> list[str]:
    return [str(e["message"]) for e in await world.items("Event") if e["reason"] == reason]


def child_writes(api: ApiServer, since: int) -> list[dict[str, Any]]:
    found = writes_in(api.audit_log, since=since, user="operator")
    return [one for one in found if one["objectRef"].get("resource") in CHILD_RESOURCES]


def passes(app: App) -> float:
    return float(app.metrics.reconciles.labels(kind="service", result="ok")._value.get())


async def test_what_others_add_is_never_touched(world: World, api_server: ApiServer) -> None:
    await own_account(world, api_server)
    async with world.operator(timings=PATIENT) as app:
        await running_service(world)
        await settled(api_server, quiet_s=1.0)
        since = api_server.audit_log.stat().st_size
        note = {"metadata": {"labels": {"team": "blue"}, "annotations": {"mesh.test/on": "yes"}}}
        for kind, name in CHILDREN:
            await world.patch(kind, name, note, manager="annotator")
        sidecar = {
            "containers": [
                {"name": "proxy", "image": "mesh.test/proxy:1"},
                {"name": "engine", "env": [{"name": "MESH", "value": "1"}]},
            ],
            "initContainers": [{"name": "mesh-init", "image": "mesh.test/init:1"}],
            "volumes": [{"name": "mesh", "emptyDir": {}}],
        }
        await world.client.request(
            "PATCH",
            object_path("Deployment", world.apps, "demo"),
            query={"fieldManager": "mesh"},
            body={"spec": {"template": {"metadata": {"labels": {"mesh": "on"}}, "spec": sidecar}}},
            content_type=STRATEGIC,
        )

        async def quiet() -> bool:
            before = passes(app)
            await asyncio.sleep(1.0)
            return passes(app) == before

        # The new pods of the roll-out are news; then there is none.
        await until(quiet, what="the end of all passes", within_s=60)
        before = passes(app)
        await asyncio.sleep(20.0 if is_full() else 0.0)
        loops = passes(app) - before
        reverts = child_writes(api_server, since)
        for kind, name in CHILDREN:
            metadata = (await world.get(kind, name))["metadata"]
            assert metadata["labels"]["team"] == "blue", kind
            assert metadata["annotations"]["mesh.test/on"] == "yes", kind
        pod = (await world.get("Deployment", "demo"))["spec"]["template"]
        assert pod["metadata"]["labels"]["mesh"] == "on"
        assert [one["name"] for one in pod["spec"]["containers"]] == ["proxy", "engine"]
        assert {"name": "MESH", "value": "1"} in pod["spec"]["containers"][1]["env"]
        assert await messages(world, "DriftReverted") == []
    if is_full():
        record("foreign-field-reverts", len(reverts), f"{len(CHILDREN)} children, a sidecar")
        record("foreign-field-loops", loops, "passes over the service in 20 s afterwards")
    assert reverts == []
    assert loops == 0


def drop_env(item: dict[str, Any]) -> None:
    item["spec"]["template"]["spec"]["containers"][0]["env"].pop(0)


def roll_back(item: dict[str, Any]) -> None:
    item["metadata"]["annotations"][HASH] = "older"
    item["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.test/older:1"


EDITS: tuple[tuple[str, str, Change, str], ...] = (
    ("Deployment", "demo", lambda d: d["spec"].update(replicas=4), "spec.replicas"),
    (
        "Deployment",
        "demo",
        roll_back,
        f"metadata.annotations.{HASH} and spec.template.spec.containers[engine].image",
    ),
    ("Deployment", "demo", drop_env, "spec.template.spec.containers[engine].env[POD_NAME]"),
    (
        "Service",
        "demo",
        lambda s: s["spec"]["selector"].update({"fleetward.io/service": "other"}),
        "spec.selector.fleetward.io/service",
    ),
    (
        "NetworkPolicy",
        "demo",
        lambda n: n["spec"]["ingress"].append({}),
        "spec.ingress",
    ),
    (
        "PodDisruptionBudget",
        "demo",
        lambda p: p["metadata"]["labels"].update({"fleetward.io/service": "other"}),
        "metadata.labels.fleetward.io/service",
    ),
    (
        "ServiceAccount",
        "demo",
        lambda a: a["metadata"]["labels"].pop("fleetward.io/service"),
        "metadata.labels.fleetward.io/service",
    ),
    (
        "ConfigMap",
        "demo-trust",
        lambda c: c["metadata"]["labels"].pop("app.kubernetes.io/managed-by"),
        "metadata.labels.app.kubernetes.io/managed-by",
    ),
    (
        "ConfigMap",
        "demo-bundle",
        lambda c: c["data"].update({"bundle.json": "{}"}),
        "data.bundle.json",
    ),
    (
        "Service",
        "demo",
        lambda s: s["metadata"].pop("ownerReferences"),
        "metadata.ownerReferences",
    ),
)
REMOVALS = {3 - 1, 6, 7, 9}


async def test_each_edit_of_a_field_of_ours_is_put_back_and_its_author_named(
    world: World, api_server: ApiServer
) -> None:
    await own_account(world, api_server)
    slowest, named = 0.0, 0
    async with world.operator(timings=PATIENT):
        await running_service(world)
        await settled(api_server, quiet_s=0.5)
        for number, (kind, name, change, path) in enumerate(EDITS):
            wanted = comparable(await world.get(kind, name))
            manager = f"kubectl-edit-{number}"
            began = time.monotonic()
            await edit(world, kind, name, change, manager=manager)

            async def as_before(
                kind: str = kind, name: str = name, wanted: dict[str, Any] = wanted
            ) -> bool:
                return comparable(await world.get(kind, name)) == wanted

            await until(as_before, what=f"the revert of {path} of {kind} {name}")
            slowest = max(slowest, time.monotonic() - began)
            author = "somebody had removed" if number in REMOVALS else f"{manager} had changed"
            words = f"Put back {path} of {kind} {name}, which {author}."

            async def told(words: str = words) -> bool:
                return words in await messages(world, "DriftReverted")

            await until(told, what=words)
            named += 1
        assert len(await messages(world, "DriftReverted")) == len(EDITS)
    if is_full():
        record("owned-field-reverted", slowest, f"slowest of {len(EDITS)} edits of 7 children")
        record("owned-field-authors", len(EDITS) - named, "edits without an Event that names them")


def comparable(item: dict[str, Any]) -> dict[str, Any]:
    """An object without what every write changes."""
    unsteady = {"resourceVersion", "generation", "managedFields"}
    metadata = {k: v for k, v in item["metadata"].items() if k not in unsteady}
    metadata["annotations"] = {
        k: v for k, v in metadata["annotations"].items() if not k.startswith("deployment.")
    }
    return {"metadata": metadata, "spec": item.get("spec"), "data": item.get("data")}


@pytest.mark.parametrize("authors", [1, 40] if is_full() else [1])
async def test_a_fight_over_a_field_is_bounded_and_said(
    world: World, api_server: ApiServer, authors: int
) -> None:
    await own_account(world, api_server)
    at_least_s = 60.0 if is_full() else 3.0
    async with world.operator(timings=PATIENT):
        await running_service(world)
        await settled(api_server, quiet_s=0.5)
        since = api_server.audit_log.stat().st_size
        began, edits, said = time.monotonic(), 0, False
        # A slow machine needs longer for the same number of blows.
        async with asyncio.timeout(240):
            while not said or time.monotonic() < began + at_least_s:
                await world.patch(
                    "Deployment",
                    "demo",
                    {"spec": {"replicas": 2 + edits % 2}},
                    manager=f"rival-{edits % authors}",
                )
                edits += 1
                if edits % 10 == 0 and not said:
                    said = bool(await messages(world, "FieldContested"))
                await asyncio.sleep(0.02)
        stopped = time.monotonic()

        async def reverted() -> bool:
            return bool((await world.get("Deployment", "demo"))["spec"]["replicas"] == 1)

        await until(reverted, what="the last revert", within_s=90)
        healed_s, fought_s = time.monotonic() - stopped, stopped - began
        contested = await messages(world, "FieldContested")
        reverts = len(child_writes(api_server, since))
        events = len(contested) + len(await messages(world, "DriftReverted"))
    if is_full() and authors > 1:
        record("contested-field-writes", reverts / edits, f"{reverts} for {edits} foreign writes")
        record("contested-field-events", events, f"in {fought_s:.0f} s by {authors} authors")
        record("contested-field-healed", healed_s, "after the last foreign write")
    # 1, 2, 4, 8 and 16 s after the first few, then every 20 s; a write may bounce and come again.
    assert reverts <= ATTEMPTS * (AT_ONCE + 6 + fought_s / LONGEST_WAIT_S)
    assert events <= AT_ONCE + 2 + fought_s / TELL_EVERY_S
    assert len(contested) == 1
    assert "spec.replicas of Deployment demo" in contested[0]
