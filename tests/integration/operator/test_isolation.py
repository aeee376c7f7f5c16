"""The operator proves isolation: at changes, after a restart, and when it is broken."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.cluster.apiserver import ApiServer
from fleetward_operator.core import probe_seen
from fleetward_operator.handlers.app import App
from tests.support.cluster_facts import condition, writes_in
from tests.support.fake_member import FakeMember
from tests.support.operator_world import World, until


async def engine_of(world: World, name: str) -> FakeMember:
    """The one engine of a new service, which takes requests."""
    await world.service(name)
    pods = await until(lambda: world.pods(name), what="the pod")
    return await world.run_pod(pods[0])


async def isolation(world: World, name: str, *, reason: str) -> dict[str, Any]:
    """The condition, once it has this reason."""

    async def told() -> dict[str, Any]:
        found = condition(await world.get("InferenceService", name), "IsolationVerified")
        return found if found.get("reason") == reason else {}

    return dict(await until(told, within_s=60, what=f"IsolationVerified {reason}"))


def numbers(app: App, world: World, name: str) -> dict[str, float | None]:
    labels = {"inferenceservice": f"{world.apps}/{name}"}
    prefix = "fleetward_operator_isolation_"
    return {
        series: app.metrics.registry.get_sample_value(prefix + series, labels)
        for series in (
            "probe_failures_total",
            "broken_engines",
            "probe_last_success_timestamp_seconds",
        )
    }


async def test_an_engine_that_shares_degrades_its_service_until_it_is_mended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_seen, "RETRY_S", 0.2)
    async with world.operator() as app:
        engine = await engine_of(world, "demo")
        await isolation(world, "demo", reason="Verified")
        found = numbers(app, world, "demo")
        assert found["probe_failures_total"] == found["broken_engines"] == 0
        assert found["probe_last_success_timestamp_seconds"]
        engine.crosses = {"another tenant"}
        await world.create(
            {
                "apiVersion": "fleetward.io/v1alpha1",
                "kind": "CachePolicy",
                "metadata": {"name": "strict", "namespace": world.apps},
                "spec": {"namespaceDefault": True, "retention": {"idleTTL": "1m"}},
            }
        )
        broken = await isolation(world, "demo", reason="IsolationBroken")
        assert broken["status"] == "False"
        assert "another tenant found 32 of 33 tokens" in broken["message"]
        service = await world.get("InferenceService", "demo")
        assert condition(service, "Degraded")["reason"] == "IsolationBroken"
        found = numbers(app, world, "demo")
        assert found["probe_failures_total"]
        assert found["broken_engines"] == 1
        engine.crosses = set()
        await isolation(world, "demo", reason="Verified")

        async def announced() -> bool:
            told = {one["reason"] for one in await world.items("Event", world.apps)}
            return {"IsolationBroken", "IsolationMended"} <= told

        await until(announced, within_s=60, what="both Events")


async def test_an_engine_from_before_the_probe_is_unknown(world: World) -> None:
    async with world.operator():
        await world.service("demo")
        pods = await until(lambda: world.pods("demo"), what="the pod")
        await world.run_pod(pods[0], unknown={"isolation-probe"})
        found = await isolation(world, "demo", reason="ProbeUnsupported")
        assert found["status"] == "Unknown"
        service = await world.get("InferenceService", "demo")
        assert condition(service, "Degraded")["status"] == "False"


async def test_probes_that_confirm_write_nothing(world: World, api_server: ApiServer) -> None:
    world.kubeconfig = api_server.kubeconfig_for_user("operator", groups=("system:masters",))
    async with world.operator(probe_every_s=0.1):
        engine = await engine_of(world, "demo")
        await isolation(world, "demo", reason="Verified")

        async def quiet() -> bool:
            """Five more probes, and no write meanwhile."""
            since, done = api_server.audit_log.stat().st_size, len(engine.probes)

            async def probed() -> bool:
                return len(engine.probes) >= done + 5

            await until(probed, within_s=60, what="five probes")
            return not writes_in(api_server.audit_log, since=since, user="operator")

        await until(quiet, within_s=60, what="probes without a write")


async def test_the_next_leader_lets_a_proof_stand_and_probes_again(
    world: World, api_server: ApiServer
) -> None:
    async with world.operator():
        engine = await engine_of(world, "demo")
        before = await isolation(world, "demo", reason="Verified")
    done = len(engine.probes)
    since = api_server.audit_log.stat().st_size
    world.kubeconfig = api_server.kubeconfig_for_user("operator", groups=("system:masters",))
    async with world.operator(pod="operator-1"):

        async def probed() -> bool:
            return len(engine.probes) > done

        await until(probed, within_s=60, what="the next leader's probe")
        assert await isolation(world, "demo", reason="Verified") == before
    written = writes_in(api_server.audit_log, since=since, user="operator")
    assert [one["requestURI"] for one in written if "inferenceservices" in one["requestURI"]] == []
