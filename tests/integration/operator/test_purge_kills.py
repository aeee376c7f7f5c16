"""The operator killed before and after each write of a purge: the next one ends it, honestly."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fleetward_operator.edges.writer import Writer
from tests.integration.operator.test_purges import (
    ending,
    purge,
    report,
    two_engines_and_a_gateway,
)
from tests.support.operator_world import World, until

MOST_WRITES = 40


class Killer:
    """Lets the `at`-th write of a purge be the last thing that a process does."""

    def __init__(self, *, at: int, after: bool) -> None:
        self.at, self.after = at, after
        self.count = 0
        self.dead = asyncio.Event()

    async def send(self, real: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        self.count += 1
        mine = self.count
        if self.dead.is_set() or (mine == self.at and not self.after):
            await self._die()
        answer: dict[str, Any] = await real(*args, **kwargs)
        if mine == self.at or self.dead.is_set():
            await self._die()
        return answer

    async def _die(self) -> None:
        self.dead.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("after", [False, True])
async def test_killed_at_any_write_a_purge_still_ends_completed(
    world: World, monkeypatch: pytest.MonkeyPatch, *, after: bool
) -> None:
    real = Writer._send
    async with world.operator():
        members = await two_engines_and_a_gateway(world)
        for member in members:
            member.blocks = 3
        await quiet(world)
    at = 0
    for at in range(1, MOST_WRITES):
        killer = Killer(at=at, after=after)
        async with world.operator() as app:
            await until(lambda app=app: leads(app), what="the lease")  # type: ignore[misc]
            await asyncio.sleep(0.3)

            async def send(self: Writer, *args: Any, killer: Killer = killer, **kw: Any) -> Any:
                return await killer.send(real.__get__(self), *args, **kw)

            monkeypatch.setattr(Writer, "_send", send)
            await purge(world, f"wipe-{at}")
            waits = [
                asyncio.create_task(killer.dead.wait()),
                asyncio.create_task(ending(world, f"wipe-{at}")),
            ]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
            monkeypatch.setattr(Writer, "_send", real)
        async with world.operator():
            found = await ending(world, f"wipe-{at}")
            assert found["status"]["phase"] == "Completed", (at, found["status"])
            checked = await report(world, found)
            assert checked.ok, (at, checked.summary)
            await until(lambda: nothing_is_left(world), what="the end of holds and records")
        if not killer.dead.is_set():
            break
    assert 5 < at < MOST_WRITES - 1, f"a purge makes {at - 1} writes"


async def leads(app: Any) -> Any:
    return app.operator


async def quiet(world: World) -> None:
    """Until the service has settled, so that the purge's writes are the only ones."""

    async def serving() -> bool:
        found = await world.get("InferenceService", "demo")
        return bool(found["status"]["readyReplicas"] == 2)

    await until(serving, what="both engines")


async def nothing_is_left(world: World) -> bool:
    pods = [*await world.items("Pod"), *await world.items("Pod", world.release)]
    names = [one["metadata"]["name"] for one in await world.items("ConfigMap", world.release)]
    held = any(pod["metadata"].get("finalizers") for pod in pods)
    return not held and not any(name.startswith("fleetward-purge-") for name in names)
