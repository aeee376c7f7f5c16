"""Two real replicas of the operator, and everything that can happen to the one that leads."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from e2e.cluster.apiserver import ApiServer
from e2e.cluster.ports import free_port
from fleetward_kube import KubeError
from fleetward_operator.settings import Timings
from tests.support.leadership_line import Line
from tests.support.operator_process import REPOSITORY, operator_environment
from tests.support.operator_world import World, until

SKEWS_S = (-600.0, 600.0)
EDIT_EVERY_S = 0.3
LOOK_EVERY_S = 0.05
SERVICES = ("lead-0", "lead-1", "lead-2")


@dataclass
class Replica:
    """One candidate: its user at the API server, its line to it, and its process."""

    name: str
    user: str
    line: Line
    kubeconfig: Path
    log: Path
    skew_s: float
    health: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def identity(self) -> str:
        """What it writes into the lease."""
        return f"{self.name}_{self.name}"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)


@dataclass
class Stage:
    """Leader changes on one API server, while somebody edits specs all the time."""

    world: World
    api: ApiServer
    folder: Path
    dice: random.Random
    replicas: list[Replica] = field(default_factory=list)
    takeovers: list[float] = field(default_factory=list)
    released: list[float] = field(default_factory=list)
    wakings: list[tuple[str, datetime]] = field(default_factory=list)
    marks: list[datetime] = field(default_factory=list)
    asked: dict[str, int] = field(default_factory=dict)
    timings: Timings = field(default_factory=Timings)
    since: int = 0
    _may_edit: asyncio.Event = field(default_factory=asyncio.Event)
    _numbers: Any = field(default_factory=itertools.count)

    async def set_up(self, timings: Timings) -> None:
        """Two replicas, one of them on a slow line, each with a wrong clock of its own."""
        self.timings = timings
        for number, delay_s in enumerate((0.0, 0.05)):
            line = Line(self.api.plane.api_port, delay_s=delay_s)
            await line.start()
            name = f"replica-{number}"
            user = f"{name}-{self.world.release}"
            own = self.api.kubeconfig_for_user(user, groups=("system:masters",))
            text = own.read_text().replace(self.api.url, f"https://127.0.0.1:{line.port}")
            own.write_text(text)
            log = self.folder / f"{name}.log"
            self.replicas.append(Replica(name, user, line, own, log, SKEWS_S[number]))
        for name in SERVICES:
            await self.world.service(name, scaling={"minReplicas": 0})
        await self._start_all()

    async def change_terms(self, timings: Timings) -> None:
        """Start both anew with another lease."""
        self.timings = timings
        for replica in self.replicas:
            await self.end(replica)
        await self._start_all()

    async def _start_all(self) -> None:
        # The verdict reads from here on: it must see how the first lease was taken.
        self.since = self.api.audit_log.stat().st_size
        for replica in self.replicas:
            self.start(replica)
        await self.settled()

    async def tear_down(self) -> None:
        """End what runs, frozen or not."""
        for replica in self.replicas:
            if replica.running:
                replica.signal(signal.SIGKILL)
                replica.signal(signal.SIGCONT)
            if replica.process is not None:
                await asyncio.to_thread(replica.process.wait)
            await replica.line.stop()

    def start(self, replica: Replica) -> None:
        """Start its process, as a kubelet would."""
        replica.health = free_port()
        environment = operator_environment(
            self.world,
            kubeconfig=replica.kubeconfig,
            ports=(replica.health, free_port()),
            pod=replica.name,
        )
        environment["PYTHONPATH"] += f":{REPOSITORY}"
        lease = self.timings
        numbers = (
            *(replica.skew_s, lease.lease_duration),
            *(lease.lease_renew_deadline, lease.lease_retry),
        )
        with replica.log.open("ab") as sink:
            replica.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.leadership_replica", *map(str, numbers)],
                env=environment,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )

    async def end(self, replica: Replica) -> int:
        """SIGTERM; the exit code."""
        assert replica.process is not None
        replica.signal(signal.SIGTERM)
        return await asyncio.to_thread(replica.process.wait, 60)

    async def settled(self) -> None:
        """Both run, one leads, and the other is fit to take over."""
        for replica in self.replicas:
            if not replica.running:
                self.start(replica)
            await until(lambda: self._is_ready(replica), within_s=150, what=f"{replica.name} ready")  # noqa: B023
        await until(self.leader, within_s=60, what="a leader")
        # The one in waiting has to have seen the lease.
        await asyncio.sleep(2 * self.timings.lease_retry)

    async def holder(self) -> str:
        """The identity in the lease; empty when there is none."""
        lease = await self.world.get("Lease", "fleetward-operator", self.world.release)
        return str((lease.get("spec") or {}).get("holderIdentity") or "")

    async def leader(self) -> Replica | None:
        """Who holds the lease."""
        holder = await self.holder()
        return next((one for one in self.replicas if one.identity == holder), None)

    async def change(self, kind: str) -> None:
        """One leader change of a kind; both run again at its end."""
        replica = await until(self.leader, within_s=60, what="a leader")
        replica.skew_s = self.dice.choice(SKEWS_S)
        await asyncio.sleep(self.dice.uniform(0, 2 * EDIT_EVERY_S))
        self.marks.append(datetime.now(UTC))
        fault: Callable[[Replica], Awaitable[None]] = getattr(self, f"_{kind}")
        await fault(replica)
        await self.settled()

    async def edit(self) -> None:
        """Edit one spec after another until cancelled, so that a leader always has work."""
        self._may_edit.set()
        for name in itertools.cycle(SERVICES):
            await self._may_edit.wait()
            await self.edit_one(name)
            await asyncio.sleep(EDIT_EVERY_S)

    async def edit_one(self, name: str) -> None:
        """Ask for another number of sequences."""
        number = 8 + next(self._numbers) % 200
        with contextlib.suppress(KubeError):
            await self.world.patch(
                "InferenceService", name, {"spec": {"engine": {"maxNumSeqs": number}}}
            )
            self.asked[name] = number

    async def converged(self) -> bool:
        """Whether every service is what was asked for last."""
        for name, number in self.asked.items():
            service = await self.world.get("InferenceService", name)
            if (
                service.get("status", {}).get("observedGeneration")
                != (service["metadata"]["generation"])
            ):
                return False
            if await self._deployed(name) != str(number):
                return False
        return True

    async def _deployed(self, name: str) -> str:
        deployment = await self.world.get("Deployment", name)
        if not deployment:
            return ""
        words = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        return str(words[words.index("--max-num-seqs") + 1])

    async def _kill(self, replica: Replica) -> None:
        replica.signal(signal.SIGKILL)
        await self._taken_over(replica)
        assert replica.process is not None
        await asyncio.to_thread(replica.process.wait)

    async def _term(self, replica: Replica) -> None:
        replica.signal(signal.SIGTERM)
        self.released.append(await self._taken_over(replica))
        assert replica.process is not None
        code = await asyncio.to_thread(replica.process.wait, 60)
        assert code == 0, replica.log.read_text()[-4000:]

    async def _stop(self, replica: Replica) -> None:
        replica.signal(signal.SIGSTOP)
        await self._taken_over(replica)
        await asyncio.sleep(self.dice.uniform(0, 1))
        await self._wake(replica)

    async def _late(self, replica: Replica) -> None:
        """A write is sent in time, held up on its way, and arrives when another leads."""
        self._may_edit.clear()
        await until(self.converged, within_s=60, what="rest before the late write")
        replica.line.hold()
        await self.edit_one(SERVICES[0])
        await asyncio.wait_for(replica.line.caught.wait(), 30)
        # Long enough for the pass that the edit caused, too short for more than its first write.
        await asyncio.sleep(0.3)
        replica.signal(signal.SIGSTOP)
        await self._taken_over(replica)
        await until(self.converged, within_s=60, what="the work of the next leader")
        replica.line.open()
        await asyncio.sleep(1.0)
        await self._wake(replica)
        self._may_edit.set()

    async def _cut(self, replica: Replica) -> None:
        """Nothing that it sends arrives, and it learns so from silence alone."""
        replica.line.cut()
        await self._taken_over(replica)
        await asyncio.sleep(self.dice.uniform(0, 2))
        replica.line.open()

    async def _wake(self, replica: Replica) -> None:
        self.wakings.append((replica.user, datetime.now(UTC)))
        replica.signal(signal.SIGCONT)
        await asyncio.sleep(4 * self.timings.lease_retry)

    async def _taken_over(self, replica: Replica) -> float:
        """Wait until another holds the lease; seconds from now on."""
        began = time.monotonic()
        while await self.holder() in {replica.identity, ""}:
            if time.monotonic() - began > 120:
                raise AssertionError(f"nobody took over from {replica.name}")
            await asyncio.sleep(LOOK_EVERY_S)
        took_s = time.monotonic() - began
        self.takeovers.append(took_s)
        return took_s

    async def _is_ready(self, replica: Replica) -> bool:
        if not replica.running:
            self.start(replica)
            return False
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{replica.health}/readyz") as answer,
            ):
                return answer.status == 200
        except aiohttp.ClientError:
            return False
