"""One candidacy for the lease: watch from the start, work while it is held, end when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from fleetward_api.errors import FleetwardError
from fleetward_kube import KubeClient, KubeError
from fleetward_kube.backoff import Backoff, not_before
from fleetward_operator.edges.catalog import Catalog
from fleetward_operator.edges.lease import (
    Clocks,
    Leadership,
    LeaseTerms,
    awake_or_asleep,
)
from fleetward_operator.edges.member_client import MemberClient
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.edges.own_writes import OwnWrites
from fleetward_operator.edges.store import Store
from fleetward_operator.edges.writer import Writer
from fleetward_operator.errors import NotLeading
from fleetward_operator.handlers.context import Operator
from fleetward_operator.handlers.evidence import reconcile_evidence
from fleetward_operator.handlers.fleet import reconcile_fleet
from fleetward_operator.handlers.holds import reconcile_hold
from fleetward_operator.handlers.isolation import reconcile_isolation
from fleetward_operator.handlers.policy import reconcile_policy
from fleetward_operator.handlers.purge import reconcile_purge
from fleetward_operator.handlers.service import reconcile_service
from fleetward_operator.handlers.tenant import reconcile_tenant
from fleetward_operator.handlers.triggers import Triggers
from fleetward_operator.handlers.wiring import build_operator
from fleetward_operator.handlers.worker import Reconcile, Worker
from fleetward_operator.settings import Settings

WATCHDOG_PERIOD_S = 5.0
AT_ONCE: Final = {
    "service": 8,
    "isolation": 2,
    "policy": 2,
    "tenant": 2,
    "purge": 4,
    "fleet": 1,
    "hold": 2,
    "evidence": 1,
}

WorkerFunction = Callable[[Operator, str], Awaitable[float | None]]

logger = logging.getLogger(__name__)


class Replica:
    """Everything that a candidacy knows; the next one starts from nothing, as a restart would.

    Args:
        client: an open client, of this candidacy alone.
        settings: the environment, read.
        metrics: the process's own.
    """

    def __init__(self, client: KubeClient, settings: Settings, metrics: Metrics) -> None:
        self.operator: Operator | None = None
        self.workers: dict[str, Worker] = {}
        self._client = client
        self._settings = settings
        self._metrics = metrics
        self._own_writes = OwnWrites(time.monotonic)
        self._writer: Writer | None = None
        self._landed = True
        self._calls: MemberClient | None = None
        self._lost = False
        self._rng = random.Random()  # noqa: S311 - jitter of retries
        self._store = Store(
            client,
            release_namespace=settings.identity.namespace,
            key_namespace=settings.key_namespace,
            own_writes=self._own_writes,
        )
        self._leadership = Leadership(client, _terms(settings), _clocks())
        for kind, count in AT_ONCE.items():
            self.workers[kind] = Worker(
                kind,
                self._bound(_RECONCILERS[kind]),
                metrics=metrics,
                rng=self._rng,
                at_once=count,
            )

    async def run(self) -> None:
        """Watch and work; returns when a lease once held is lost, and then nothing runs any more.

        Raises:
            RuntimeError: a part ended that never may.
        """
        lease = asyncio.create_task(self._leadership.run(), name="lease")
        tasks = [
            lease,
            self._spawn("watchdog", self._watch_over()),
            self._spawn("work", self._lead()),
        ]
        for kind, informer in self._store.informers.items():
            tasks.append(self._spawn(f"watch {kind}", informer.run()))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # What has been sent lands before anything is broken off and another replica may lead.
            self._landed = self._writer is None or await self._writer.drain()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._metrics.leader.set(0)
            self._metrics.isolation.clear()
            # Who asks from here on is told that nobody works, instead of seeing what is old.
            self.operator = None
        for task in done:
            task.result()

    async def close(self) -> None:
        """Give the lease back, if it is still ours; call it once `run` has ended."""
        if self._landed:
            with contextlib.suppress(Exception):
                await self._leadership.release()
        if self._calls is not None:
            await self._calls.close()

    def enqueue(self, worker: str, key: str) -> None:
        """Have a key worked on; before the lease is held it waits in the queue."""
        if worker == "gone":
            if self.operator is not None:
                self.operator.pusher.forget(key)
                self.operator.push_retries.pop(key, None)
                self.operator.fleet.ledger.retire(key)
            return
        self.workers[worker].queue.add(key)

    def enqueue_later(self, worker: str, key: str, delay_s: float) -> None:
        """Have a key worked on after a delay, or earlier when there is other news of it."""
        self.workers[worker].queue.add_later(key, delay_s)

    def fault(self) -> str:
        """Why it is not fit to take over, or the empty string."""
        for kind, informer in self._store.informers.items():
            if not informer.synced.is_set():
                return f"{kind}: not listed yet" + (informer.problem and f" ({informer.problem})")
            if informer.problem:
                return f"{kind}: {informer.problem}"
        return ""

    def _bound(self, function: WorkerFunction) -> Reconcile:
        async def reconcile(key: str) -> float | None:
            if self.operator is None:
                raise RuntimeError("a worker ran before the lease was held")
            return await function(self.operator, key)

        return reconcile

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that never may end by itself."""

        async def run() -> None:
            await work
            raise RuntimeError(f"{name} has ended")

        return asyncio.create_task(run(), name=name)

    async def _lead(self) -> None:
        """Wait for every list and for the lease, then work."""
        catalog = Catalog(self._store, may_serve=self._settings.engine.namespace_allowed)
        await self._store.synced()
        await self._leadership.acquired.wait()
        logger.info("the lease is ours; starting to work")
        self._metrics.leader.set(1)
        self.operator = await self._set_up(catalog)
        Triggers(
            self._store,
            catalog,
            enqueue=self.enqueue,
            enqueue_later=self.enqueue_later,
            release_namespace=self._settings.identity.namespace,
        ).subscribe()
        self.enqueue("fleet", "")
        self.enqueue("evidence", "")
        async with asyncio.TaskGroup() as group:
            for worker in self.workers.values():
                group.create_task(worker.run())

    async def _set_up(self, catalog: Catalog) -> Operator:
        """The parts, tried for as long as the API server is in trouble and the lease is ours."""
        self._writer = writer = Writer(
            self._client,
            may_write=self._leadership.may_write,
            metrics=self._metrics,
            timeout_s=self._settings.timings.write_timeout,
        )
        backoff = Backoff(self._rng)
        while True:
            try:
                operator, self._calls = await build_operator(
                    self._client,
                    writer,
                    self._store,
                    settings=self._settings,
                    own_writes=self._own_writes,
                    catalog=catalog,
                    metrics=self._metrics,
                    enqueue=self.enqueue,
                )
            except FleetwardError as fault:
                # A conflict is a write of ours whose answer was lost; a lost lease ends us anyway.
                lost = isinstance(fault, KubeError) and fault.conflict
                if not (fault.retryable or lost or isinstance(fault, NotLeading)):
                    raise
                delay = not_before(fault, backoff.next_delay())
                logger.warning("cannot start to work: %s; again in %.1f s", fault, delay)
                await asyncio.sleep(delay)
            else:
                return operator

    async def _watch_over(self) -> None:
        """End when a watch has gone quiet without noticing it itself."""
        while True:
            await asyncio.sleep(WATCHDOG_PERIOD_S)
            informers = self._store.informers
            self._metrics.heard([informer.silent_for() for informer in informers.values()])
            for kind, informer in informers.items():
                mute_s = informer.mute_for()
                if not informer.problem and mute_s > self._settings.timings.watch_quiet_limit:
                    logger.error("the watch of %s is dead for %.0f s", kind, mute_s)
                    return


_RECONCILERS: dict[str, WorkerFunction] = {
    "service": reconcile_service,
    "isolation": reconcile_isolation,
    "policy": reconcile_policy,
    "tenant": reconcile_tenant,
    "purge": reconcile_purge,
    "fleet": reconcile_fleet,
    "hold": reconcile_hold,
    "evidence": reconcile_evidence,
}


def _terms(settings: Settings) -> LeaseTerms:
    identity = settings.identity
    # A container that restarts in its pod is the same candidate: its earlier self is dead.
    suffix = identity.pod_uid or uuid.uuid4().hex
    return LeaseTerms(
        namespace=identity.namespace,
        identity=f"{identity.pod_name}_{suffix}",
        duration_s=settings.timings.lease_duration,
        renew_deadline_s=settings.timings.lease_renew_deadline,
        retry_s=settings.timings.lease_retry,
    )


def _clocks() -> Clocks:
    return Clocks(monotonic=awake_or_asleep, wall=lambda: dt.datetime.now(dt.UTC))
