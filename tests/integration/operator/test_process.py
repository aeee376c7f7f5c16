"""The operator's own program, as the service account of the chart."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import aiohttp

from e2e.cluster.apiserver import ApiServer
from e2e.cluster.ports import free_port
from tests.support.cluster_facts import condition
from tests.support.operator_process import OperatorProcess, grant, start_process
from tests.support.operator_world import World, until

CHILDREN = (
    "Deployment",
    "Service",
    "ServiceAccount",
    "PodDisruptionBudget",
    "NetworkPolicy",
)


async def start(world: World, api: ApiServer, folder: Path) -> OperatorProcess:
    await grant(world)
    account = api.kubeconfig_for_service_account(world.release, "fleetward-operator")
    return again(world, account, folder)


def again(world: World, account: Path, folder: Path) -> OperatorProcess:
    ports = (free_port(), free_port())
    return start_process(world, kubeconfig=account, ports=ports, log=folder / "operator.log")


async def serving(world: World, name: str) -> bool:
    found = await world.get("InferenceService", name)
    return condition(found, "Ready").get("reason") == "Serving"


async def test_the_charts_rights_are_enough_for_everything(
    world: World, api_server: ApiServer, tmp_path: Path
) -> None:
    operator = await start(world, api_server, tmp_path)
    try:
        await world.service("demo")
        pods = await until(lambda: world.pods("demo"), what="the pod")
        await world.run_pod(pods[0])
        await world.run_pod(await world.gateway_pod())
        await until(lambda: serving(world, "demo"), what="Ready")
        await world.create(
            {
                "apiVersion": "fleetward.io/v1alpha1",
                "kind": "CachePurge",
                "metadata": {"name": "wipe"},
                "spec": {"tenant": "alpha", "reason": "asked to"},
            }
        )

        async def completed() -> bool:
            found = await world.get("CachePurge", "wipe")
            return bool(found.get("status", {}).get("phase") == "Completed")

        await until(completed, what="the purge")
        async with aiohttp.ClientSession() as session:
            for port, path, text in (
                (operator.health, "/healthz", "ok"),
                (operator.health, "/readyz", "ok"),
                (operator.metrics, "/metrics", "fleetward_operator_leader 1.0"),
            ):
                async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                    assert answer.status == 200
                    assert text in await answer.text()

        async def announced() -> bool:
            reasons = {one["reason"] for one in await world.items("Event")}
            return {"ChildrenApplied", "ServiceReady"} <= reasons

        await until(announced, what="the Events")
        lease = await world.get("Lease", "fleetward-operator", world.release)
        assert lease["spec"]["holderIdentity"] == "operator-0_operator-0"
    finally:
        assert operator.stop() == 0, operator.log.read_text()
    log = operator.log.read_text()
    assert "Forbidden" not in log, log
    assert "Traceback" not in log, log
    lease = await world.get("Lease", "fleetward-operator", world.release)
    assert lease["spec"]["holderIdentity"] == "", log


async def test_killed_at_random_moments_it_converges(
    world: World, api_server: ApiServer, tmp_path: Path
) -> None:
    """Create, change and delete services while the operator is killed again and again."""
    rng = random.Random(20)  # noqa: S311 - when to kill
    operator = await start(world, api_server, tmp_path)
    account = api_server.kubeconfig_for_service_account(world.release, "fleetward-operator")
    for round_number in range(5):
        name = f"svc-{round_number}"
        await world.service(name, scaling={"minReplicas": 0})
        if round_number:
            await world.patch(
                "InferenceService",
                f"svc-{round_number - 1}",
                {"spec": {"engine": {"maxNumSeqs": 8 + round_number}}},
            )
        if round_number > 1:
            await world.delete("InferenceService", f"svc-{round_number - 2}")
        await asyncio.sleep(rng.uniform(0.5, 2.0))
        operator.kill()
        operator = again(world, account, tmp_path)
    try:
        await until(lambda: _converged(world), within_s=60, what="convergence")
    finally:
        operator.stop()
    for kind in CHILDREN:
        items = await world.items(kind)
        names = sorted(one["metadata"]["name"] for one in items)
        assert [n for n in names if n.startswith("svc-")] == ["svc-3", "svc-4"], (kind, names)


async def _converged(world: World) -> bool:
    for number in (3, 4):
        found = await world.get("InferenceService", f"svc-{number}")
        status = found.get("status", {})
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return False
        if condition(found, "Ready").get("reason") != "Idle":
            return False
        deployment = await world.get("Deployment", f"svc-{number}")
        args = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        wanted = {3: "12", 4: "64"}[number]
        if args[args.index("--max-num-seqs") + 1] != wanted:
            return False
    deployments = [one["metadata"]["name"] for one in await world.items("Deployment")]
    return sorted(deployments) == ["svc-3", "svc-4"]
