"""Leadership by our own Lease, with fencing: what is not certainly ours, we don't use.

A holder may write until `renew_deadline` after it *sent* its last successful renewal, on a clock
that also runs while the machine sleeps; others wait `duration` after they *saw* the last change.
Wall clocks of two machines never meet in a comparison, and a process that was stopped wakes up
without the right. A term that has once run out stays over, even when a late renewal succeeds: work
was refused in between, and a new candidacy starts from what it sees.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleetward_kube import KubeClient, KubeError
from fleetward_kube.backoff import not_before
from fleetward_operator.edges.kinds import collection_path, object_path

LEASE_NAME = "fleetward-operator"
FIELD_MANAGER = "fleetward-lease"

RELEASE_ATTEMPTS = 3
_ROUNDING_S = 0.01
_RETRIES = 4

logger = logging.getLogger(__name__)


def awake_or_asleep() -> float:
    """Seconds on a clock that nobody sets and that goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """Who we are, and the lease's seconds."""

    namespace: str
    identity: str
    duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Clocks:
    """Steady seconds (`awake_or_asleep`), for decisions; wall time, for readers of the Lease."""

    monotonic: Callable[[], float]
    wall: Callable[[], datetime]


class Leadership:
    """One candidate. `run()` ends when a lease once held is lost; the process must then end."""

    def __init__(self, client: KubeClient, terms: LeaseTerms, clocks: Clocks) -> None:
        self.acquired = asyncio.Event()
        self._client = client
        self._terms = terms
        self._clocks = clocks
        self._path = object_path("Lease", terms.namespace, LEASE_NAME)
        self._renewed_at: float | None = None
        self._over = False
        self._fault: KubeError | None = None
        self._seen_version = ""
        self._seen_at = 0.0
        self._lease: dict[str, Any] | None = None

    def may_write(self) -> bool:
        """Whether the lease is certainly ours at this instant."""
        if self._renewed_at is None or self._over:
            return False
        in_time = self._clocks.monotonic() - self._renewed_at < self._terms.renew_deadline_s
        self._over = self.acquired.is_set() and not in_time
        return in_time

    async def run(self) -> None:
        """Acquire, then renew until renewing fails for longer than the deadline."""
        while True:
            await self._round()
            if self.may_write():
                self.acquired.set()
            elif self.acquired.is_set():
                logger.error("the lease is lost; this replica stops")
                return
            await asyncio.sleep(self._pause())

    async def release(self) -> None:
        """Give the lease back, so that the next leader need not wait for it to run out.

        Only when nothing that we sent can still arrive: see `Writer.drain`.

        Raises:
            KubeError: the API server could not be asked; the lease then runs out by itself.
        """
        self._over = True
        for _ in range(RELEASE_ATTEMPTS):
            lease = await self._get()
            spec = (lease or {}).get("spec") or {}
            if lease is None or spec.get("holderIdentity") != self._terms.identity:
                return
            free = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1}
            try:
                await self._put({**lease, "spec": free})
            except KubeError as error:
                # A renewal of ours that was under way when we were told to stop.
                if not error.conflict:
                    raise
            else:
                return

    def _pause(self) -> float:
        """Seconds until the next round.

        Sooner after a fault while we hold the lease, but not before the API server wants us; not
        later than when another's lease will have run out.
        """
        if self._fault is not None and self._renewed_at is not None:
            return not_before(self._fault, self._terms.retry_s / _RETRIES)
        if self._renewed_at is not None or not self._seen_version:
            return self._terms.retry_s
        left = self._seen_at + self._terms.duration_s - self._clocks.monotonic()
        return min(self._terms.retry_s, left + _ROUNDING_S) if left > 0 else self._terms.retry_s

    async def _round(self) -> None:
        """One attempt to get or keep the lease; faults only cost time."""
        self._fault = None
        sent_at = self._clocks.monotonic()
        try:
            lease = await self._read()
            if lease is None:
                await self._create()
            elif self._free(lease):
                await self._take(lease)
            else:
                self._renewed_at = None
                return
        except KubeError as error:
            logger.warning("the lease could not be renewed: %s", error)
            self._fault = error
            return
        # A term that ran out while the answer was on its way must not come back to life.
        self.may_write()
        self._renewed_at = sent_at

    async def _read(self) -> dict[str, Any] | None:
        # Renewing against what we wrote last saves a read; any failure makes us read again.
        if self._renewed_at is not None and self._lease is not None:
            return self._lease
        return await self._get()

    async def _get(self) -> dict[str, Any] | None:
        try:
            return await self._client.request("GET", self._path, timeout=self._terms.retry_s * 2)
        except KubeError as error:
            if error.not_found:
                return None
            raise

    def _free(self, lease: dict[str, Any]) -> bool:
        version = str(lease["metadata"]["resourceVersion"])
        if version != self._seen_version:
            self._seen_version, self._seen_at = version, self._clocks.monotonic()
        holder = (lease.get("spec") or {}).get("holderIdentity") or ""
        if holder in {"", self._terms.identity}:
            return True
        return self._clocks.monotonic() - self._seen_at >= self._terms.duration_s

    async def _create(self) -> None:
        manifest = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": LEASE_NAME, "namespace": self._terms.namespace},
            "spec": self._spec(transitions=0, acquired=self._now()),
        }
        self._lease = await self._client.request(
            "POST",
            collection_path("Lease", self._terms.namespace),
            query={"fieldManager": FIELD_MANAGER},
            body=manifest,
            timeout=self._terms.retry_s * 2,
        )

    async def _take(self, lease: dict[str, Any]) -> None:
        before = lease.get("spec") or {}
        ours = before.get("holderIdentity") == self._terms.identity
        transitions = int(before.get("leaseTransitions") or 0) + (0 if ours else 1)
        acquired = str(before.get("acquireTime") or self._now()) if ours else self._now()
        spec = self._spec(transitions=transitions, acquired=acquired)
        await self._put({**lease, "spec": spec})

    async def _put(self, lease: dict[str, Any]) -> None:
        try:
            self._lease = await self._client.request(
                "PUT",
                self._path,
                query={"fieldManager": FIELD_MANAGER},
                body=lease,
                timeout=self._terms.retry_s * 2,
            )
        except KubeError:
            # Someone else wrote it, or our own write has arrived and its answer has not. Whether
            # we still lead, and against which version to renew, only a fresh read can say.
            self._lease = None
            raise

    def _spec(self, *, transitions: int, acquired: str) -> dict[str, Any]:
        return {
            "holderIdentity": self._terms.identity,
            "leaseDurationSeconds": int(self._terms.duration_s),
            "acquireTime": acquired,
            "renewTime": self._now(),
            "leaseTransitions": transitions,
        }

    def _now(self) -> str:
        return self._clocks.wall().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
