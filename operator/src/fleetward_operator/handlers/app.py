"""The running operator: its probes and metrics, and one candidacy for the lease after another."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from aiohttp import web

from fleetward_kube import KubeClient
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.handlers.context import Operator
from fleetward_operator.handlers.http import health_app, metrics_app, serve
from fleetward_operator.handlers.replica import Replica
from fleetward_operator.settings import Settings

logger = logging.getLogger(__name__)


class App:
    """The process. `stopped` is set when it must end; `exit_code` says how.

    A lost lease does not end it: an API server that is away now and then would have the kubelet
    start us ever later. Nothing of the lost candidacy is kept, and none of its tasks is left when
    the next one begins.

    Args:
        settings: the environment, read.
        connect: makes a client of the API server, one for each candidacy.
    """

    def __init__(
        self, settings: Settings, *, connect: Callable[[], KubeClient] = KubeClient.from_environment
    ) -> None:
        self._connect = connect
        self.stopped = asyncio.Event()
        self.exit_code = 0
        self.metrics = Metrics()
        self._settings = settings
        self._tasks: set[asyncio.Task[None]] = set()
        self._exits = contextlib.AsyncExitStack()
        self._candidacy = contextlib.AsyncExitStack()
        self._replica: Replica | None = None

    @property
    def operator(self) -> Operator | None:
        """The parts that work, while the lease is ours."""
        return None if self._replica is None else self._replica.operator

    async def start(self) -> None:
        """Find the API server, listen, and start to watch; returns at once."""
        try:
            await self._listen()
            self._replica = await self._candidate()
        except BaseException:
            await self.stop()
            raise
        self._tasks.add(asyncio.create_task(self._supervise(), name="candidacies"))

    async def stop(self) -> None:
        """End in order: no more work, then the lease goes back, then the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._candidacy.aclose()
        await self._exits.aclose()

    def enqueue(self, worker: str, key: str) -> None:
        """Have a key worked on; before the lease is held it waits in the queue."""
        if self._replica is not None:
            self._replica.enqueue(worker, key)

    def fault(self) -> str:
        """Why this replica is not fit to take over, or the empty string."""
        return "starting" if self._replica is None else self._replica.fault()

    async def _candidate(self) -> Replica:
        client = await self._candidacy.enter_async_context(self._connect())
        replica = Replica(client, self._settings, self.metrics)
        self._candidacy.push_async_callback(replica.close)
        return replica

    async def _supervise(self) -> None:
        """One candidacy after another; a part that fails ends the process."""
        try:
            while self._replica is not None:
                await self._replica.run()
                logger.warning("the lease is lost; standing for it again")
                await self._candidacy.aclose()
                self._replica = await self._candidate()
        except Exception:
            logger.exception("this replica failed")
        self.exit_code = 1
        self.stopped.set()

    async def _listen(self) -> None:
        ports = self._settings.ports

        def alive() -> str:
            return "stopping" if self.stopped.is_set() else ""

        def refresh() -> None:
            for kind, worker in self._replica.workers.items() if self._replica else ():
                self.metrics.queue_depth.labels(kind=kind).set(worker.queue.depth)

        for app, port in (
            (health_app(alive=alive, ready=self.fault), ports.health),
            (metrics_app(self.metrics, before=refresh), ports.metrics),
        ):
            runner: web.AppRunner = await serve(app, port)
            self._exits.push_async_callback(runner.cleanup)
