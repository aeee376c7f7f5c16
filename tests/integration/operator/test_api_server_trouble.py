"""An API server that refuses, falls silent or forgets: the data plane serves on, nothing is lost.

Promises 4 to 6. The short form has the operator in this process and a lease of three seconds.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from e2e.chaos.scale import is_full, seed
from e2e.cluster.apiserver import ApiServer
from e2e.figures.record import record
from fleetward_kube import Informer, KubeClient
from fleetward_kube.informer import WatchTiming
from fleetward_operator.edges.kinds import collection_path
from tests.integration.gateway.conftest import World as GatewayWorld
from tests.integration.gateway.objects import KEY_A, Objects, ready_world
from tests.support.api_proxy import ApiProxy, Trouble
from tests.support.fake_engine import FakeEngine
from tests.support.meanwhile import meanwhile
from tests.support.operator_world import World, until
from tests.support.own_address import own_address
from tests.support.troubled import (
    Traffic,
    Troubled,
    gateway_behind,
    seconds_until,
    troubled,
)

KEY = KEY_A.decode()
IDLE: dict[str, Any] = {"scaling": {"minReplicas": 0}}


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    fake = FakeEngine(host=own_address())
    await fake.start()
    yield fake
    await fake.stop()


def caught_up(world: World, *, sequences: dict[str, int]) -> Any:
    """Whether exactly these services have Deployments, each with its number of sequences."""

    async def look() -> bool:
        found: dict[str, int] = {}
        for item in await world.items("Deployment"):
            args = item["spec"]["template"]["spec"]["containers"][0]["args"]
            found[item["metadata"]["name"]] = int(args[args.index("--max-num-seqs") + 1])
        return found == sequences

    return look


async def change(world: World, name: str, sequences: int) -> None:
    await world.patch("InferenceService", name, {"spec": {"engine": {"maxNumSeqs": sequences}}})


async def is_401(gateway: GatewayWorld, objects: Objects) -> bool:
    return await gateway.status(KEY, objects.model) == 401


async def four_services(subject: Troubled) -> dict[str, int]:
    wanted = {"still": 4, "other": 4, "changes": 4, "goes": 4}
    for name, sequences in wanted.items():
        engine = {"runner": "Simulated", "maxNumSeqs": sequences}
        await subject.world.service(name, engine=engine, **IDLE)
    await until(caught_up(subject.world, sequences=wanted), within_s=120, what="children")
    await subject.settled()
    return wanted


def untouched_writes(subject: Troubled, since: int) -> list[str]:
    """Writes to what nobody changed."""
    paths = [record.call.path for record in subject.writes(since)]
    return [path for path in paths if {"still", "other"} & set(path.split("/"))]


async def test_refused(
    world: World, api_server: ApiServer, engine: FakeEngine, tmp_path: Path
) -> None:
    """Refused for 10 min: everything that is served is served on, and all is caught up after."""
    outage_s = 600.0 if is_full() else 4.0
    async with (
        troubled(world, api_server, tmp_path) as subject,
        gateway_behind(subject.proxy, api_server, tmp_path) as gateway,
    ):
        wanted = await four_services(subject)
        objects = await ready_world(gateway, engine)
        traffic = Traffic()
        async with meanwhile(
            subject.watch_life(), traffic.run(gateway, key=KEY, model=objects.model)
        ):
            await subject.proxy.refuse()
            began = time.monotonic()
            unready_s = await seconds_until(subject.unready, within_s=60, what="unready")
            await change(world, "changes", 9)
            await world.delete("InferenceService", "goes")
            await world.service("comes", engine={"runner": "Simulated", "maxNumSeqs": 7}, **IDLE)
            del wanted["goes"]
            wanted |= {"changes": 9, "comes": 7}
            await asyncio.sleep(max(0.0, began + outage_s - time.monotonic()))
            assert await subject.unready()
            since = len(subject.proxy.calls)
            await subject.proxy.accept()
            reconnect_s = await seconds_until(subject.ready, within_s=60, what="ready")
            caught_up_s = reconnect_s + await seconds_until(
                caught_up(world, sequences=wanted), within_s=120, what="catching up"
            )
            await asyncio.sleep(0.5)
        await gateway.delete(gateway.secret("key-a", gateway.keys))
        await until(lambda: is_401(gateway, objects), within_s=60, what="the gateway's watch")
        await subject.settled()
        assert (subject.faults, traffic.lost) == ([], []), subject.log()[-5000:]
        assert traffic.asked > outage_s
        assert unready_s <= 30
        assert reconnect_s <= (6 if is_full() else 20)
        assert caught_up_s <= 60
        assert untouched_writes(subject, since) == []
    if is_full():
        about = f"{outage_s:.0f} s refused, {traffic.asked} requests"
        record("refused-lost-requests", len(traffic.lost), about)
        record("refused-life-faults", len(subject.faults), about)
        record("refused-unready-seconds", unready_s, about)
        record("refused-reconnect-seconds", reconnect_s, about)
        record("refused-caught-up-seconds", caught_up_s, about)
        record("relist-status-writes", 0, "to services that nobody changed")


async def test_a_silent_watch_is_noticed_and_read_again(world: World, tmp_path: Path) -> None:
    """The informer alone, with a short patience."""
    async with ApiProxy(world.kubeconfig) as proxy:
        through = await proxy.write_kubeconfig(tmp_path / "kubeconfig", world.kubeconfig)
        async with KubeClient.from_environment({"KUBECONFIG": str(through)}) as client:
            informer = Informer(
                client,
                collection_path("ConfigMap", world.apps),
                timing=WatchTiming(quiet_s=1.5),
            )
            async with meanwhile(informer.run()):

                async def stands() -> bool:
                    return proxy.watching > 0

                await until(stands, what="the watch")
                proxy.deafen_watches()
                await world.create(config_map(world, "late"))

                async def told() -> bool:
                    return f"{world.apps}/late" in informer.objects

                assert await seconds_until(told, within_s=60, what="the news") > 0.5


async def test_silent(
    world: World, api_server: ApiServer, engine: FakeEngine, tmp_path: Path
) -> None:
    """First every watch is cut off without a word, then the whole API server is silent for 90 s."""
    if not is_full():
        pytest.skip("watches are given 70 s of silence: the full form")
    async with (
        troubled(world, api_server, tmp_path) as subject,
        gateway_behind(subject.proxy, api_server, tmp_path) as gateway,
    ):
        wanted = await four_services(subject)
        objects = await ready_world(gateway, engine)
        traffic = Traffic()
        async with meanwhile(
            subject.watch_life(), traffic.run(gateway, key=KEY, model=objects.model)
        ):
            subject.proxy.deafen_watches()
            await change(world, "changes", 9)
            wanted["changes"] = 9
            detected_s = await seconds_until(
                caught_up(world, sequences=wanted), within_s=150, what="detection"
            )
            await until(subject.ready, within_s=60, what="every watch")
            subject.proxy.silence()
            began = time.monotonic()
            await change(world, "changes", 11)
            await world.delete("InferenceService", "goes")
            del wanted["goes"]
            wanted["changes"] = 11
            unready_s = await seconds_until(subject.unready, within_s=120, what="unready")
            await asyncio.sleep(max(0.0, began + 90.0 - time.monotonic()))
            since = len(subject.proxy.calls)
            subject.proxy.speak()
            back_s = await seconds_until(
                caught_up(world, sequences=wanted), within_s=120, what="catching up"
            )
        await gateway.delete(gateway.secret("key-a", gateway.keys))
        await until(lambda: is_401(gateway, objects), within_s=90, what="the gateway's watch")
        await subject.settled()
        assert (subject.faults, traffic.lost) == ([], []), subject.log()[-5000:]
        assert untouched_writes(subject, since) == []
        record("silent-watch-detected-seconds", detected_s, "watches cut off, calls answered")
        record("silent-unready-seconds", unready_s, "nothing answered")
        record("silent-caught-up-seconds", back_s, "after 90 s of silence, standing calls lost")
        record("silent-lost-requests", len(traffic.lost), f"{traffic.asked} requests")


def config_map(world: World, name: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": world.apps}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def test_expired_watches(world: World, api_server: ApiServer, tmp_path: Path) -> None:
    """410 in-stream and at connect: what is known is what is there, and no ghost gets children."""
    rounds = 100 if is_full() else 5
    rng = random.Random(seed())  # noqa: S311 - what changes when
    kinds = ("InferenceService", "ConfigMap", "Deployment")
    async with troubled(world, api_server, tmp_path) as subject:
        through = await subject.proxy.write_kubeconfig(tmp_path / "own", world.kubeconfig)
        async with KubeClient.from_environment({"KUBECONFIG": str(through)}) as client:
            informers = {
                kind: Informer(client, collection_path(kind, world.apps)) for kind in kinds
            }
            async with meanwhile(subject.watch_life(), *(one.run() for one in informers.values())):
                services, answered = await expire(subject, informers, rounds=rounds, rng=rng)
                await until(caught_up(world, sequences=services), within_s=120, what="convergence")
                # An object that only a ghost in the operator's store still shows would be remade.
                await subject.settled()
        assert await caught_up(world, sequences=services)()
        assert subject.faults == [], subject.log()[-5000:]
        assert answered >= rounds
    if is_full():
        about = f"{rounds} rounds, {answered} watches answered 410"
        record("expired-watch-differences", 0, about)
        record("expired-watch-life-faults", len(subject.faults), about)


async def expire(
    subject: Troubled, informers: dict[str, Informer], *, rounds: int, rng: random.Random
) -> tuple[dict[str, int], int]:
    """Break all watches, change the world, wait for equality; the services left and the 410s."""
    world, proxy = subject.world, subject.proxy
    services: dict[str, int] = {}
    answered = 0
    for number in range(rounds):
        if number % 2:
            proxy.trouble = Trouble(expired_watches=4)
            proxy.close_watches()
            answered += 4
        else:
            answered += proxy.end_watches()
        name, sequences = f"svc-{number}", rng.randint(2, 60)
        engine = {"runner": "Simulated", "maxNumSeqs": sequences}
        await world.service(name, engine=engine, **IDLE)
        services[name] = sequences
        await world.create(config_map(world, f"map-{number}"))
        if len(services) > 4:
            gone = rng.choice(sorted(services))
            await world.delete("InferenceService", gone)
            del services[gone]
        changed = rng.choice(sorted(services))
        services[changed] = rng.randint(2, 60)
        await change(world, changed, services[changed])
        if number:
            await world.delete("ConfigMap", f"map-{number - 1}")
        await until(lambda: same(world, informers), within_s=60, what="equality")
    proxy.trouble = Trouble()
    return services, answered


async def same(world: World, informers: dict[str, Informer]) -> bool:
    """Whether each informer holds just what the API server lists, in the same versions."""
    for kind, informer in informers.items():
        listed = {
            f"{world.apps}/{one['metadata']['name']}": one["metadata"]["resourceVersion"]
            for one in await world.items(kind)
        }
        known = {key: one["metadata"]["resourceVersion"] for key, one in informer.objects.items()}
        if listed != known:
            return False
    return True
