"""An operator and a gateway behind a proxy of the API server, and what users see meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from e2e.chaos.scale import is_full
from e2e.cluster.apiserver import ApiServer
from e2e.cluster.ports import free_port
from fleetward_operator.settings import Timings
from tests.integration.gateway.conftest import World as GatewayWorld
from tests.integration.gateway.conftest import chart_rights
from tests.support.api_proxy import ApiProxy, Record
from tests.support.operator_process import grant, start_process
from tests.support.operator_world import World, until

SHORT = Timings(lease_duration=3.0, lease_renew_deadline=2.0, lease_retry=0.2, member_timeout=3.0)
"""A lease that is lost in seconds, for the short forms."""

OK = 200
QUIET_S = 4.0 if is_full() else 1.2
"""Longer than a delay of the operator's: its status writes may come a second late."""

_SILENT_WRITES = ("leases", "tokenreviews", "events")


@dataclass(slots=True)
class Troubled:
    """The operator of `world`, which reaches the API server through `proxy` alone.

    `alive` says whether its process still runs; `faults` are moments (monotonic seconds) at which
    it did not answer that it lives; `health` is the port of its probes.
    """

    world: World
    proxy: ApiProxy
    health: int
    alive: Callable[[], bool]
    log: Callable[[], str]
    faults: list[str] = field(default_factory=list)

    async def ready(self) -> bool:
        """Whether it says that it is fit to lead."""
        return await self._probe("/readyz") == OK

    async def unready(self) -> bool:
        """Whether it says that it is not."""
        return not await self.ready()

    async def watch_life(self) -> None:
        """Ask whether it lives, until cancelled, and keep each fault."""
        while True:
            status = await self._probe("/healthz")
            if status != OK:
                self.faults.append(f"/healthz said {status}")
            if not self.alive():
                self.faults.append("the process has ended")
                return
            await asyncio.sleep(0.5)

    async def _probe(self, path: str) -> int:
        timeout = aiohttp.ClientTimeout(total=10)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://127.0.0.1:{self.health}{path}") as answer,
            ):
                return answer.status
        except (aiohttp.ClientError, TimeoutError):
            return 0

    def writes(self, since: int = 0, *, accepted: bool = True) -> list[Record]:
        """The operator's writes from a call on, but for leases, reviews and Events."""
        return [
            record
            for record in self.proxy.calls[since:]
            if record.call.method != "GET"
            and not set(record.call.path.split("/")) & set(_SILENT_WRITES)
            and (not accepted or 200 <= record.status < 300)
        ]

    async def settled(self, *, quiet_s: float = QUIET_S, within_s: float = 120.0) -> None:
        """Wait until the operator has written nothing for a while."""
        deadline = time.monotonic() + within_s
        while True:
            before = len(self.writes(accepted=False))
            await asyncio.sleep(quiet_s)
            if len(self.writes(accepted=False)) == before:
                return
            assert time.monotonic() < deadline, "the operator goes on writing"


@asynccontextmanager
async def troubled(
    world: World, api: ApiServer, folder: Path, *, timings: Timings = SHORT
) -> AsyncIterator[Troubled]:
    """An operator behind a proxy: its own process in the full form, else inside this one.

    `timings` are those of the latter.
    """
    await grant(world)
    account = api.kubeconfig_for_service_account(world.release, "fleetward-operator")
    async with ApiProxy(world.kubeconfig) as proxy:
        through = await proxy.write_kubeconfig(folder / "operator.kubeconfig", account)
        if is_full():
            ports = (free_port(), free_port())
            log = folder / "operator.log"
            running = start_process(world, kubeconfig=through, ports=ports, log=log)
            made = Troubled(
                world, proxy, ports[0], lambda: running.process.poll() is None, log.read_text
            )
            try:
                yield await _leading(made)
            finally:
                running.kill()
            return
        direct, world.kubeconfig = world.kubeconfig, through
        try:
            async with world.operator(timings=timings) as app:
                made = Troubled(
                    world,
                    proxy,
                    app._settings.ports.health,
                    lambda: not app.stopped.is_set(),
                    lambda: "",
                )
                yield await _leading(made)
        finally:
            world.kubeconfig = direct


async def _leading(made: Troubled) -> Troubled:
    async def leads() -> bool:
        return bool(await made.world.get("ConfigMap", "fleetward-trust", made.world.release))

    await until(leads, within_s=120, what="an operator that leads")
    await until(made.ready, within_s=60, what="an operator that is ready")
    return made


@dataclass(slots=True)
class Traffic:
    """Requests to a gateway, one after the other, and those that were not answered 200."""

    asked: int = 0
    lost: list[str] = field(default_factory=list)

    async def run(self, gateway: GatewayWorld, *, key: str, model: str) -> None:
        """Ask until cancelled."""
        while True:
            self.asked += 1
            try:
                status = await gateway.status(key, model)
            except aiohttp.ClientError as error:
                self.lost.append(repr(error))
            else:
                if status != OK:
                    self.lost.append(str(status))
            await asyncio.sleep(0.05)


@asynccontextmanager
async def gateway_behind(
    proxy: ApiProxy, api: ApiServer, folder: Path
) -> AsyncIterator[GatewayWorld]:
    """Namespaces for a gateway of its own that will read the API server through a proxy."""
    from fleetward_kube import KubeClient  # noqa: PLC0415

    mark = secrets.token_hex(3)
    release, keys, apps = (f"gw-{name}-{mark}" for name in ("release", "keys", "apps"))
    account = api.kubeconfig_for_service_account(release, "fleetward-gateway")
    through = await proxy.write_kubeconfig(folder / "gateway.kubeconfig", account)
    async with (
        KubeClient.from_environment({"KUBECONFIG": str(api.kubeconfig)}, patience_s=60) as client,
        aiohttp.ClientSession() as session,
    ):
        made = GatewayWorld(client, session, release, keys, apps, through, folder, free_port())
        for name in (release, keys, apps):
            await made.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for manifest in chart_rights(release, keys):
            await made.apply(manifest)
        try:
            yield made
        finally:
            made.stop()
            for name in (apps, release, keys):
                with contextlib.suppress(Exception):
                    await client.request("DELETE", f"/api/v1/namespaces/{name}")


async def seconds_until(look: Any, *, within_s: float, what: str) -> float:
    """How long it took for `look` to come true."""
    started = time.monotonic()
    await until(look, within_s=within_s, what=what)
    return time.monotonic() - started
