"""The running operator: watch from the start, work while the lease is held, end when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from aiohttp import web

from fleetward_kube import KubeClient
from fleetward_operator.edges.catalog import Catalog
from fleetward_operator.edges.lease import Clocks, Leadership, LeaseTerms
from fleetward_operator.edges.member_client import MemberClient
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.edges.own_writes import OwnWrites
from fleetward_operator.edges.store import Store
from fleetward_operator.edges.writer import Writer
from fleetward_operator.handlers.context import Operator
from fleetward_operator.handlers.fleet import reconcile_fleet
from fleetward_operator.handlers.holds import reconcile_hold
from fleetward_operator.handlers.http import health_app, metrics_app, serve
from fleetward_operator.handlers.policy import reconcile_policy
from fleetward_operator.handlers.purge import reconcile_purge
from fleetward_operator.handlers.service import reconcile_service
from fleetward_operator.handlers.tenant import reconcile_tenant
from fleetward_operator.handlers.triggers import Triggers
from fleetward_operator.handlers.wiring import build_operator
from fleetward_operator.handlers.worker import Reconcile, Worker
from fleetward_operator.settings import Settings

WATCHDOG_PERIOD_S = 5.0

WorkerFunction = Callable[[Operator, str], Awaitable[float | None]]

logger = logging.getLogger(__name__)


class App:
    """One replica. `stopped` is set when it must end; `exit_code` says how.

    Args:
        settings: the environment, read.
        connect: makes the client of the API server.
    """

    def __init__(
        self, settings: Settings, *, connect: Callable[[], KubeClient] = KubeClient.from_environment
    ) -> None:
        self._connect = connect
        self.stopped = asyncio.Event()
        self.exit_code = 0
        self.metrics = Metrics()
        self.workers: dict[str, Worker] = {}
        self.operator: Operator | None = None
        self._settings = settings
        self._tasks: set[asyncio.Task[None]] = set()
        self._exits = contextlib.AsyncExitStack()
        self._store: Store | None = None
        self._leadership: Leadership | None = None
        self._calls: MemberClient | None = None

    async def start(self) -> None:
        """Open the client and start every task; returns at once."""
        settings = self._settings
        client = await self._exits.enter_async_context(self._connect())
        own_writes = OwnWrites(time.monotonic)
        self._store = Store(
            client,
            release_namespace=settings.identity.namespace,
            key_namespace=settings.key_namespace,
            own_writes=own_writes,
        )
        self._leadership = Leadership(client, _terms(settings), _clocks())
        self._make_workers()
        for kind, informer in self._store.informers.items():
            self._supervise(f"watch {kind}", informer.run())
        self._supervise("lease", self._leadership.run(), ends=True)
        self._supervise("watchdog", self._watch_over())
        self._supervise("work", self._lead(client, own_writes))
        await self._listen()

    async def stop(self) -> None:
        """End in order: no more work, then the lease goes back, then the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._leadership is not None:
            with contextlib.suppress(Exception):
                await self._leadership.release()
        if self._calls is not None:
            await self._calls.close()
        await self._exits.aclose()

    def enqueue(self, worker: str, key: str) -> None:
        """Have a key worked on; before the lease is held it waits in the queue."""
        if worker == "gone":
            if self.operator is not None:
                self.operator.pusher.forget(key)
                self.operator.push_retries.pop(key, None)
            return
        self.workers[worker].queue.add(key)

    def enqueue_later(self, worker: str, key: str, delay_s: float) -> None:
        """Have a key worked on after a delay, or earlier when there is other news of it."""
        self.workers[worker].queue.add_later(key, delay_s)

    def fault(self) -> str:
        """Why this replica is not fit to take over, or the empty string."""
        if self._store is None:
            return "starting"
        for kind, informer in self._store.informers.items():
            if not informer.synced.is_set():
                return f"{kind}: not listed yet"
            if informer.problem:
                return f"{kind}: {informer.problem}"
        return ""

    def _make_workers(self) -> None:
        at_once = {"service": 8, "policy": 2, "tenant": 2, "purge": 4, "fleet": 1, "hold": 2}
        rng = random.Random()  # noqa: S311 - jitter of retries
        for kind, count in at_once.items():
            self.workers[kind] = Worker(
                kind,
                self._bound(_RECONCILERS[kind]),
                metrics=self.metrics,
                rng=rng,
                at_once=count,
            )

    def _bound(self, function: WorkerFunction) -> Reconcile:
        async def reconcile(key: str) -> float | None:
            if self.operator is None:
                raise RuntimeError("a worker ran before the lease was held")
            return await function(self.operator, key)

        return reconcile

    async def _lead(self, client: KubeClient, own_writes: OwnWrites) -> None:
        """Wait for every list and for the lease, then work."""
        store, leadership = self._store, self._leadership
        if store is None or leadership is None:
            raise RuntimeError("the operator was not started")
        catalog = Catalog(store, may_serve=self._settings.engine.namespace_allowed)
        await store.synced()
        await leadership.acquired.wait()
        logger.info("the lease is ours; starting to work")
        self.metrics.leader.set(1)
        writer = Writer(
            client,
            may_write=leadership.may_write,
            metrics=self.metrics,
            timeout_s=self._settings.timings.write_timeout,
        )
        self.operator, self._calls = await build_operator(
            client,
            writer,
            store,
            settings=self._settings,
            own_writes=own_writes,
            catalog=catalog,
            metrics=self.metrics,
            enqueue=self.enqueue,
        )
        Triggers(
            store,
            catalog,
            enqueue=self.enqueue,
            enqueue_later=self.enqueue_later,
            release_namespace=self._settings.identity.namespace,
        ).subscribe()
        self.enqueue("fleet", "")
        async with asyncio.TaskGroup() as group:
            for worker in self.workers.values():
                group.create_task(worker.run())

    async def _watch_over(self) -> None:
        """End the process when a watch has gone quiet without noticing it itself."""
        while True:
            await asyncio.sleep(WATCHDOG_PERIOD_S)
            informers = self._store.informers if self._store else {}
            silences = {kind: informer.silent_for() for kind, informer in informers.items()}
            self.metrics.heard(silences.values())
            for kind, informer in informers.items():
                silent_s = silences[kind]
                if not informer.problem and silent_s > self._settings.timings.watch_quiet_limit:
                    logger.error("the watch of %s is dead for %.0f s", kind, silent_s)
                    return

    async def _listen(self) -> None:
        ports = self._settings.ports

        def alive() -> str:
            return "stopping" if self.stopped.is_set() else ""

        def refresh() -> None:
            for kind, worker in self.workers.items():
                self.metrics.queue_depth.labels(kind=kind).set(worker.queue.depth)

        for app, port in (
            (health_app(alive=alive, ready=self.fault), ports.health),
            (metrics_app(self.metrics, before=refresh), ports.metrics),
        ):
            runner: web.AppRunner = await serve(app, port)
            self._exits.push_async_callback(runner.cleanup)

    def _supervise(self, name: str, work: Coroutine[Any, Any, None], *, ends: bool = False) -> None:
        """Run a task whose end, for whatever reason, ends the process."""

        async def run() -> None:
            try:
                await work
                log = logger.info if ends else logger.error
                log("%s has ended", name)
            except Exception:
                logger.exception("%s failed", name)
            self.exit_code = 1
            self.stopped.set()

        self._tasks.add(asyncio.create_task(run(), name=name))


_RECONCILERS: dict[str, WorkerFunction] = {
    "service": reconcile_service,
    "policy": reconcile_policy,
    "tenant": reconcile_tenant,
    "purge": reconcile_purge,
    "fleet": reconcile_fleet,
    "hold": reconcile_hold,
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
    return Clocks(monotonic=time.monotonic, wall=lambda: dt.datetime.now(dt.UTC))
