"""An API server that throttles or fails, and a foreign writer: nothing lost, nothing hurried.

Promises 3 and 7 to 9.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import time
from pathlib import Path
from typing import Any

import pytest

from e2e.chaos.scale import is_full
from e2e.cluster.apiserver import ApiServer
from e2e.figures.record import record
from fleetward_kube import KubeError
from fleetward_kube.client import APPLY
from fleetward_operator.edges.kinds import object_path
from fleetward_operator.settings import Timings
from tests.support.api_proxy import Trouble
from tests.support.cluster_facts import condition
from tests.support.meanwhile import meanwhile
from tests.support.operator_world import World, until
from tests.support.troubled import Troubled, seconds_until, troubled

FOREIGN = "foreign.test/count"
HANDS = 4
IDLE_S = 1800.0


def manifest(sequences: int) -> dict[str, Any]:
    return {
        "engine": {"runner": "Simulated", "maxNumSeqs": sequences},
        "scaling": {"minReplicas": 0},
    }


async def rollout(world: World, names: list[str]) -> None:
    for name in names:
        await world.service(name, **manifest(4))


async def change_all(world: World, names: list[str], sequences: int) -> None:
    for name in names:
        spec = {"spec": {"engine": {"maxNumSeqs": sequences}}}
        await world.patch("InferenceService", name, spec)


def settled(world: World, names: list[str], *, sequences: int) -> Any:
    """Whether each of these services has its Deployment, and says so."""

    async def look() -> bool:
        services = {one["metadata"]["name"]: one for one in await world.items("InferenceService")}
        children = {one["metadata"]["name"]: one for one in await world.items("Deployment")}
        return all(
            name in children
            and _sequences(children[name]) == sequences
            and services[name].get("status", {}).get("observedGeneration")
            == services[name]["metadata"]["generation"]
            and condition(services[name], "Ready").get("reason") == "Idle"
            for name in names
        )

    return look


def _sequences(deployment: dict[str, Any]) -> int:
    args = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return int(args[args.index("--max-num-seqs") + 1])


async def test_throttled(world: World, api_server: ApiServer, tmp_path: Path) -> None:
    """429 on 30 % of all calls: none comes again too early, and all is done in time."""
    count, trouble_s = (100, 600.0) if is_full() else (3, 0.0)
    async with troubled(world, api_server, tmp_path, timings=Timings()) as subject:
        proxy = subject.proxy
        async with meanwhile(subject.watch_life()):
            calm = [f"calm-{number}" for number in range(count)]
            started = time.monotonic()
            await rollout(world, calm)
            await until(settled(world, calm, sequences=4), within_s=240, what="a calm rollout")
            calm_s = time.monotonic() - started
            began = time.monotonic()
            proxy.trouble = Trouble(throttled=0.3)
            rounds: list[float] = []
            while not rounds or time.monotonic() < began + trouble_s:
                names = [f"late-{len(rounds)}-{number}" for number in range(count)]
                started = time.monotonic()
                await rollout(world, names)
                await until(settled(world, names, sequences=4), within_s=240, what="a rollout")
                rounds.append(time.monotonic() - started)
                for name in names:
                    await world.delete("InferenceService", name)
            proxy.trouble = Trouble()
        throttled = sum(one.status == 429 for one in proxy.calls)
        assert subject.faults == [], subject.log()[-5000:]
        assert proxy.early == []
        assert throttled > count
        times = sorted(rounds)[len(rounds) // 2] / calm_s
    if is_full():
        about = f"{throttled} calls of {len(proxy.calls)} throttled in {trouble_s:.0f} s"
        record("throttled-early-calls", len(proxy.early), about)
        record("throttled-life-faults", len(subject.faults), about)
        rollouts = f"median of {len(rounds)} rollouts of {count} services; calm: {calm_s:.1f} s"
        record("throttled-times-normal", round(times, 2), rollouts)


def about_five_seconds(rng: random.Random) -> float:
    """Log-normal with its median at 5 s: one call in six is later than 8 s."""
    return rng.lognormvariate(math.log(5.0), 0.5)


async def test_failing(world: World, api_server: ApiServer, tmp_path: Path) -> None:
    """5xx on 30 % of all calls and a late answer to each: all is carried out afterwards."""
    count, trouble_s = (20, 120.0) if is_full() else (3, 4.0)
    latency = about_five_seconds if is_full() else lambda rng: rng.uniform(0.0, 0.4)
    async with troubled(world, api_server, tmp_path) as subject:
        names = [f"svc-{number}" for number in range(count)]
        async with meanwhile(subject.watch_life()):
            await rollout(world, names[: count // 2])
            subject.proxy.trouble = Trouble(failing=0.3, latency_s=latency)
            began = time.monotonic()
            await rollout(world, names[count // 2 :])
            await change_all(world, names, 12)
            await asyncio.sleep(max(0.0, began + trouble_s - time.monotonic()))
            failed = sum(one.status >= 500 for one in subject.proxy.calls)
            subject.proxy.trouble = Trouble()
            healed_s = await seconds_until(
                settled(world, names, sequences=12), within_s=300, what="convergence"
            )
        assert subject.faults == [], subject.log()[-5000:]
        assert failed > 0
    if is_full():
        about = f"{failed} calls failed in {trouble_s:.0f} s"
        record("failing-lost-services", len(subject.faults), about)
        record("failing-converged-seconds", healed_s, about)


class ForeignWriter:
    """Somebody else who writes labels and conditions of their own, all the time."""

    def __init__(self, world: World, names: list[str], *, per_second: float) -> None:
        self.last: dict[str, int] = dict.fromkeys(names, 0)
        self.patches = 0
        self._world = world
        self._names = names
        self._pause_s = HANDS / per_second
        self._over = False
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Write until told to finish."""
        async with asyncio.TaskGroup() as group:
            for hand in range(HANDS):
                group.create_task(self._write_some(self._names[hand::HANDS]))
        self._ended.set()

    async def finish(self) -> None:
        """Begin no other write, and wait for the answers: one cut off may still arrive."""
        self._over = True
        await self._ended.wait()

    async def _write_some(self, names: list[str]) -> None:
        due = time.monotonic()
        for name in itertools.takewhile(lambda _: not self._over, itertools.cycle(names)):
            try:
                await self.write(name)
            except KubeError as error:
                if not error.retryable:
                    raise
                # It may have arrived: the same again changes nothing.
                continue
            due = max(due + self._pause_s, time.monotonic() - 1.0)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def write(self, name: str) -> None:
        """One patch: label and condition in turn, each with a count."""
        number = self.last[name] + 1
        metadata: dict[str, Any] = {"name": name, "namespace": self._world.apps}
        body: dict[str, Any] = {
            "apiVersion": "fleetward.io/v1alpha1",
            "kind": "InferenceService",
            "metadata": metadata,
        }
        subresource = "" if number % 2 else "status"
        if number % 2:
            metadata["labels"] = {FOREIGN: str(number)}
        else:
            body["status"] = {"conditions": [foreign_condition(number)]}
        await self._world.client.request(
            "PATCH",
            object_path("InferenceService", self._world.apps, name, subresource=subresource),
            query={"fieldManager": f"foreign-{number % 2}", "force": "true"},
            body=body,
            content_type=APPLY,
        )
        self.last[name] = number
        self.patches += 1


def foreign_condition(number: int) -> dict[str, Any]:
    return {
        "type": "ForeignCounted",
        "status": "True",
        "reason": "Counted",
        "message": str(number),
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


async def test_foreign_writer(world: World, api_server: ApiServer, tmp_path: Path) -> None:
    """Labels and conditions of others stay, ours arrive, and we write no more than in calm."""
    count, wanted, storm_s = (20, 50.0, 30.0) if is_full() else (4, 10.0, 3.0)
    async with troubled(world, api_server, tmp_path) as subject:
        names = [f"svc-{number}" for number in range(count)]
        await rollout(world, names)
        await until(settled(world, names, sequences=4), within_s=240, what="the rollout")
        await subject.settled()
        calm = await writes_of(subject, names, sequences=5)
        writer = ForeignWriter(world, names, per_second=wanted)
        since = len(subject.proxy.calls)
        started = time.monotonic()
        async with meanwhile(subject.watch_life(), writer.run()):
            await asyncio.sleep(storm_s / 2)
            quiet = len(subject.writes(since, accepted=False))
            await change_all(world, names, 6)
            await until(settled(world, names, sequences=6), within_s=120, what="our side")
            await asyncio.sleep(max(0.0, started + storm_s - time.monotonic()))
            await writer.finish()
        rate = writer.patches / (time.monotonic() - started)
        await subject.settled()
        stormy = len(subject.writes(since, accepted=False))
        lost = [name for name in names if not await keeps(world, name, writer.last[name])]
        assert await settled(world, names, sequences=6)()
        assert subject.faults == []
        assert lost == []
        # A busy machine makes fewer: the rate stands beside the figure.
        assert writer.patches > count
        # What others write is no reason for us to write.
        assert quiet == 0
        assert stormy <= 2 * calm
    if is_full():
        about = f"{writer.patches} foreign patches at {rate:.0f}/s"
        record("foreign-lost-updates", len(lost), about)
        record(
            "foreign-write-amplification",
            round(stormy / calm, 2),
            f"{stormy} writes, refused ones among them, for {count} changes; in calm {calm}",
        )


async def writes_of(subject: Troubled, names: list[str], *, sequences: int) -> int:
    """How many writes one change of each service takes when nobody else writes."""
    since = len(subject.proxy.calls)
    await change_all(subject.world, names, sequences)
    look = settled(subject.world, names, sequences=sequences)
    await until(look, within_s=120, what="calm changes")
    await subject.settled()
    return len(subject.writes(since, accepted=False))


async def keeps(world: World, name: str, last: int) -> bool:
    """Whether a service shows the last label and the last condition of the foreign writer."""
    found = await world.get("InferenceService", name)
    label = last if last % 2 else last - 1
    told = last - last % 2
    message = condition(found, "ForeignCounted").get("message", "0")
    return bool(found["metadata"]["labels"][FOREIGN] == str(label) and message == str(told))


async def test_an_idle_fleet(world: World, api_server: ApiServer, tmp_path: Path) -> None:
    """500 services and nothing to do: not one write in half an hour."""
    if not is_full():
        pytest.skip("test_restarts.py has the short form")
    names = [f"svc-{number}" for number in range(500)]
    async with troubled(world, api_server, tmp_path) as subject:
        for start in range(0, len(names), 20):
            await asyncio.gather(
                *(world.service(name, **manifest(4)) for name in names[start : start + 20])
            )
        await until(settled(world, names, sequences=4), within_s=600, what="the rollout")
        await subject.settled(quiet_s=10.0)
        since = len(subject.proxy.calls)
        await asyncio.sleep(IDLE_S)
        writes = subject.writes(since, accepted=False)
        record("idle-fleet-writes", len(writes), f"{len(names)} services for {IDLE_S:.0f} s")
        assert writes == []
