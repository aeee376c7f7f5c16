"""Runs a worker function over the keys of one queue, and maps every fault to a delay."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from time import perf_counter

from fleetward_api.errors import FleetwardError
from fleetward_kube import KubeError
from fleetward_kube.backoff import not_before
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.errors import NotLeading
from fleetward_operator.handlers.queue import KeyQueue

Reconcile = Callable[[str], Awaitable[float | None]]
"""Deals with one key; the seconds after which to look again, None for not before there is news."""

FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 30.0
SPREAD_S = 0.2

logger = logging.getLogger(__name__)


class Worker:
    """One kind's queue and the tasks that empty it."""

    def __init__(
        self,
        kind: str,
        reconcile: Reconcile,
        *,
        metrics: Metrics,
        rng: random.Random,
        at_once: int,
    ) -> None:
        self.kind = kind
        self.queue = KeyQueue()
        self._reconcile = reconcile
        self._metrics = metrics
        self._rng = rng
        self._at_once = at_once
        self._failures: dict[str, int] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._at_once):
                group.create_task(self._work())

    async def _work(self) -> None:
        me = asyncio.current_task()
        while True:
            # A pass that failed in the very moment of a cancel may have answered with its fault.
            if me is not None and me.cancelling():
                raise asyncio.CancelledError
            key = await self.queue.take()
            self._metrics.queue_depth.labels(kind=self.kind).set(self.queue.depth)
            started = perf_counter()
            try:
                result = await self._pass(key)
            finally:
                self.queue.done(key)
            self._metrics.reconciles.labels(kind=self.kind, result=result).inc()
            self._metrics.duration.labels(kind=self.kind).observe(perf_counter() - started)

    async def _pass(self, key: str) -> str:
        try:
            again = await self._reconcile(key)
        except NotLeading:
            # This replica is about to end; the next leader starts from what it sees.
            return "not-leading"
        except (KubeError, FleetwardError) as fault:
            retryable = fault.retryable or getattr(fault, "conflict", False)
            logger.log(
                logging.INFO if retryable else logging.WARNING, "%s %s: %s", self.kind, key, fault
            )
            self.queue.add_later(key, self._delay_after(fault, key))
            return "retry"
        except Exception:
            # One object's surprise must not end the work on all others.
            logger.exception("%s %s: a fault of ours", self.kind, key)
            self.queue.add_later(key, self._delay(key))
            return "error"
        self._failures.pop(key, None)
        if again is not None:
            self.queue.add_later(key, again)
        return "ok"

    def _delay_after(self, fault: Exception, key: str) -> float:
        # Who is told when to come again comes then: to wait ever longer as well helps nobody.
        asked_s = not_before(fault, 0.0)
        return asked_s + self._rng.uniform(0.0, SPREAD_S) if asked_s else self._delay(key)

    def _delay(self, key: str) -> float:
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        whole = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(count, 10))
        return whole * self._rng.uniform(0.5, 1.0)
