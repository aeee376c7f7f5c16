"""A new operator finds everything as it should be, and two operators are one."""

from __future__ import annotations

import asyncio
from typing import Any

from e2e.cluster.apiserver import ApiServer
from fleetward_operator.handlers.app import App
from fleetward_operator.settings import Timings
from tests.support.cluster_facts import condition, writes_in
from tests.support.operator_world import World, until


async def serving(world: World, name: str) -> None:
    async def ready() -> bool:
        found = await world.get("InferenceService", name)
        return condition(found, "Ready").get("reason") == "Serving"

    await until(ready, what=f"{name} Ready")


async def settled(audit: ApiServer, *, quiet_s: float = 2.0) -> int:
    """The audit log's length once nobody writes any more."""
    while True:
        before = audit.audit_log.stat().st_size
        mark = before
        await asyncio.sleep(quiet_s)
        if not writes_in(audit.audit_log, since=mark, user="operator"):
            return audit.audit_log.stat().st_size


async def three_services(world: World) -> None:
    names = ("one", "two", "three")
    for name in names:
        await world.service(name)
    for name in names:
        pods = await until(lambda name=name: world.pods(name), what="the pod")  # type: ignore[misc]
        await world.run_pod(pods[0])
    gateway = await world.gateway_pod()
    await world.run_pod(gateway)
    for name in names:
        await serving(world, name)


async def test_a_restart_with_everything_present_writes_nothing(
    world: World, api_server: ApiServer
) -> None:
    world.kubeconfig = api_server.kubeconfig_for_user("operator", groups=("system:masters",))
    async with world.operator():
        await three_services(world)
        await settled(api_server)
    since = api_server.audit_log.stat().st_size
    async with world.operator(pod="operator-1") as app:

        async def worked() -> bool:
            done = app.metrics.reconciles.labels(kind="service", result="ok")._value.get()
            return bool(done >= 3)

        await until(worked, what="a pass over every service")
        await settled(api_server)
    assert written(api_server, since=since) == []


async def test_an_idle_operator_writes_nothing(world: World, api_server: ApiServer) -> None:
    world.kubeconfig = api_server.kubeconfig_for_user("operator", groups=("system:masters",))
    async with world.operator():
        await three_services(world)
        since = await settled(api_server)
        await asyncio.sleep(5)
    assert written(api_server, since=since) == []


async def test_of_two_operators_one_works_and_the_other_takes_over(
    world: World,
) -> None:
    timings = Timings(
        lease_duration=3.0, lease_renew_deadline=2.0, lease_retry=0.2, member_timeout=3.0
    )
    async with world.operator(pod="first", timings=timings) as first:
        await until(lambda: _leads(first), what="the first leader")
        async with world.operator(pod="second", timings=timings) as second:
            await world.service("demo")
            await until(lambda: world.pods("demo"), what="the pod")
            assert second.operator is None
            # Killed without a word: its tasks end and the lease is not given back.
            for task in first._tasks:
                task.cancel()
            await until(lambda: _leads(second), within_s=20, what="the take-over")
            pods = await world.pods("demo")
            await world.run_pod(pods[0])
            await serving(world, "demo")


async def test_no_child_is_made_for_a_service_that_only_the_watch_still_shows(
    world: World,
) -> None:
    async with world.operator() as app:
        created = await world.service("ghost", scaling={"minReplicas": 0})
        await until(lambda: world.get("Deployment", "ghost"), what="the child")
        operator = app.operator
        assert operator is not None
        await world.delete("InferenceService", "ghost")

        async def gone() -> bool:
            return not await world.get("Deployment", "ghost")

        await until(gone, what="garbage collection")
        # The watch missed the deletion: it still shows the service, as after a lost 410.
        informer = operator.store.informers["InferenceService"]
        informer._objects[f"{world.apps}/ghost"] = created
        operator.own_writes._written.clear()
        app.enqueue("service", f"{world.apps}/ghost")
        await asyncio.sleep(1.0)
        assert await world.get("Deployment", "ghost") == {}
        del informer._objects[f"{world.apps}/ghost"]


def written(api: ApiServer, *, since: int) -> list[str]:
    """The operator's writes from an offset on, each as `verb path`."""
    events = writes_in(api.audit_log, since=since, user="operator")
    return [f"{event['verb']} {event['requestURI']}" for event in events]


async def _leads(app: App) -> Any:
    return app.operator
