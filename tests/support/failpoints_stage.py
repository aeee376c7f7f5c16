"""An operator process behind a proxy, that a sweep kills, starts and waits for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from e2e.cluster.apiserver import ApiServer
from e2e.cluster.ports import free_port
from tests.support.api_proxy import ApiProxy
from tests.support.failpoints import Failpoints
from tests.support.operator_forks import Forks
from tests.support.operator_process import grant, operator_environment
from tests.support.operator_world import World

SETTLES_WITHIN_S = 150.0
QUIET_S = 0.5
LONG_QUIET_S = 1.3
"""Longer than the operator's own longest pause after news: services wait 1 s after floors rose."""

_WORKERS = {
    "service": "InferenceService",
    "policy": "CachePolicy",
    "tenant": "Tenant",
    "purge": "CachePurge",
}


@dataclass
class Stage:
    """One world and the operator in it."""

    world: World
    forks: Forks
    points: Failpoints
    kubeconfig: Path
    log: Path
    pid: int = 0
    _ports: tuple[int, int] = (0, 0)
    _session: aiohttp.ClientSession = field(default_factory=aiohttp.ClientSession)

    def start(self) -> None:
        """Start the operator's program; with the same identity, so that the lease is its own."""
        self._ports = (free_port(), free_port())
        environment = operator_environment(
            self.world, kubeconfig=self.kubeconfig, ports=self._ports
        )
        self.pid = self.forks.start(environment, log=self.log)

    def kill(self) -> None:
        """Kill -9; nothing of it is sent from here on."""
        if self.pid:
            self.forks.kill(self.pid)
            self.pid = 0

    def revive(self) -> bool:
        """Start it again where it ended by itself; whether that was so."""
        if self.pid and not self.forks.ended(self.pid):
            return False
        self.start()
        return True

    async def settle(self, *, quiet_s: float = QUIET_S) -> None:
        """Until it has passed over everything and has nothing more to say."""
        await wait_for(lambda: self.is_at_rest(quiet_s=quiet_s), what="an operator at rest")

    async def is_at_rest(self, *, quiet_s: float = QUIET_S) -> bool:
        """Whether it has passed over everything, and made no call for some seconds."""
        if self.pid and self.forks.ended(self.pid):
            raise AssertionError(f"the operator ended: {self.log.read_text()[-3000:]}")
        if self.points.quiet_for() < quiet_s:
            return False
        counts = {kind: len(await self.world.items(name, "")) for kind, name in _WORKERS.items()}
        return await self._has_worked(counts) and self.points.quiet_for() >= quiet_s

    async def _has_worked(self, counts: dict[str, int]) -> bool:
        done: dict[str, float] = {}
        try:
            async with self._session.get(f"http://127.0.0.1:{self._ports[1]}/metrics") as answer:
                text = await answer.text()
        except aiohttp.ClientError:
            return False
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                kind = sample.labels.get("kind", "")
                if sample.name == "fleetward_operator_queue_depth" and sample.value:
                    return False
                if sample.name == "fleetward_operator_reconciles_total":
                    done[kind] = done.get(kind, 0.0) + sample.value
        needed = {**counts, "fleet": 1}
        return all(done.get(kind, 0.0) >= count for kind, count in needed.items())

    async def close(self) -> None:
        """End the operator and the connection to its metrics."""
        self.kill()
        await self._session.close()


@asynccontextmanager
async def open_stage(world: World, api: ApiServer, folder: Path) -> AsyncIterator[Stage]:
    """A stage in a world; the operator is not started yet."""
    await grant(world)
    account = api.kubeconfig_for_service_account(world.release, "fleetward-operator")
    masks = {world.release: "RELEASE", world.apps: "APPS", world.keys: "KEYS"}
    async with ApiProxy(world.kubeconfig) as proxy:
        kubeconfig = await proxy.write_kubeconfig(folder / "operator.kubeconfig", account)
        with Forks() as forks:
            points = Failpoints(proxy, masks)
            stage = Stage(world, forks, points, kubeconfig, folder / "operator.log")
            try:
                yield stage
            finally:
                await stage.close()


async def wait_for(
    look: Callable[[], Awaitable[bool]], *, what: str, within_s: float = SETTLES_WITHIN_S
) -> None:
    """Look every 100 ms until it is true; generous, so that only a hang can reach the limit."""
    deadline = time.monotonic() + within_s
    while not await look():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come within {within_s} s")
        await asyncio.sleep(0.1)
