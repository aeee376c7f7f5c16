"""Leadership by our own Lease, with fencing: what is not certainly ours, we don't use.

A holder may write until `renew_deadline` after it *sent* its last successful renewal, on the
monotonic clock; others wait `duration` after they *saw* the last change. Wall clocks of two
machines never meet in a comparison, and a process that was stopped wakes up without the right.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleetward_kube import KubeClient, KubeError
from fleetward_operator.edges.kinds import collection_path, object_path

LEASE_NAME = "fleetward-operator"
FIELD_MANAGER = "fleetward-lease"

logger = logging.getLogger(__name__)


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
    """Monotonic seconds, for decisions; wall time, for people who read the Lease."""

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
        self._seen_version = ""
        self._seen_at = 0.0
        self._lease: dict[str, Any] | None = None

    def may_write(self) -> bool:
        """Whether the lease is certainly ours at this instant."""
        if self._renewed_at is None:
            return False
        held_for = self._clocks.monotonic() - self._renewed_at
        return held_for < self._terms.renew_deadline_s

    async def run(self) -> None:
        """Acquire, then renew until renewing fails for longer than the deadline."""
        while True:
            await self._round()
            if self.may_write():
                self.acquired.set()
            elif self.acquired.is_set():
                logger.error("the lease is lost; this replica stops")
                return
            await asyncio.sleep(self._terms.retry_s)

    async def release(self) -> None:
        """Give the lease back, so that the next leader need not wait for it to run out."""
        if not self.may_write() or self._lease is None:
            return
        self._renewed_at = None
        spec = {**self._lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
        await self._put({**self._lease, "spec": spec})

    async def _round(self) -> None:
        """One attempt to get or keep the lease; faults only cost time."""
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
            return
        self._renewed_at = sent_at

    async def _read(self) -> dict[str, Any] | None:
        # Renewing against what we wrote last saves a read; a conflict makes us read again.
        if self._renewed_at is not None and self._lease is not None:
            return self._lease
        try:
            lease = await self._client.request("GET", self._path, timeout=self._terms.retry_s * 2)
        except KubeError as error:
            if error.not_found:
                return None
            raise
        return lease

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
        except KubeError as error:
            if error.conflict:
                # Someone else wrote it. Whether we still lead, only a fresh read can say.
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
