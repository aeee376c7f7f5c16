"""Objects that turn invalid on a real API server: the gateway keeps the last good one, and says so.

What the schema lets through of a Tenant or a service is a valid wish; data of ConfigMaps and
Secrets is free text.
"""

from __future__ import annotations

import asyncio
import base64
import random
from typing import Any

from e2e.chaos.scale import is_full, seed
from e2e.figures.record import record
from fleetward_kube.errors import KubeError
from tests.integration.gateway.conftest import World
from tests.integration.gateway.objects import KEY_A, ready_world
from tests.support.broken_objects import broken
from tests.support.fake_engine import FakeEngine

INVALID = "fleetward_gateway_config_objects_invalid{"
JUNK = ("", "{", "null", "[]", '{"version":-1}', "-----BEGIN", "\u00e4" * 300, "9" * 40)


class Requests:
    """Requests sent while objects break."""

    def __init__(self, world: World, model: str) -> None:
        self._world = world
        self._model = model
        self.refused = 0

    async def send(self) -> None:
        """Send one."""
        self.refused += await self._world.status(KEY_A.decode(), self._model) != 200

    async def send_until_told(self, *, invalid: bool) -> None:
        """Send them one after the other until the metric says that objects are invalid, or not."""
        async with asyncio.timeout(30):
            while (INVALID in await self._world.metrics()) is not invalid:
                await self.send()


def garbled(good: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The object with junk for one of its texts."""
    junk = rng.choice(JUNK)
    if good["kind"] == "Secret":
        junk = base64.b64encode(junk.encode()).decode()
    return {**good, "data": {**good["data"], rng.choice(sorted(good["data"])): junk}}


async def is_turned_down(world: World, bad: dict[str, Any]) -> bool:
    """Whether the API server refuses the object; what it takes is taken back by the caller."""
    try:
        await world.apply(bad)
    except KubeError:
        return True
    return False


async def test_no_request_is_refused_while_objects_break(world: World, engine: FakeEngine) -> None:
    objects = await ready_world(world, engine)
    floors = world.config_map("fleetward-floors", floors_json='{"version":1}')
    own, trust = world.operator_manifests()
    # The engines' affair, not the gateway's.
    del trust["data"]["gateway.pub"]
    texts = [floors, own, trust]
    kinds = [objects.tenant("a"), objects.slice_(engine)]
    requests = Requests(world, objects.model)
    rng = random.Random(seed())  # noqa: S311 - what to break
    turned_down, rounds = 0, 100 if is_full() else 12
    for _ in range(rounds):
        good = rng.choice([*texts, *kinds])
        if good in texts:
            await world.apply(garbled(good, rng))
            await requests.send_until_told(invalid=True)
        elif await is_turned_down(world, broken(good, rng)):
            turned_down += 1
            await requests.send()
        await world.apply(good)
        await requests.send_until_told(invalid=False)
        await requests.send()
    if is_full():
        told = f"{rounds} objects broken, {turned_down} turned down by the API server"
        record("config-mutations-downtime", requests.refused, told)
    assert requests.refused == 0
    assert 0 < turned_down < rounds
