"""Writes statuses: only when they differ, and never in a storm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleetward_api.resources.base import ApiModel
from fleetward_kube import KubeClient, KubeError
from fleetward_operator.core.own_status import own_status
from fleetward_operator.edges.kinds import object_path
from fleetward_operator.edges.own_writes import OwnWrites
from fleetward_operator.edges.store import trim_object
from fleetward_operator.edges.writer import STATUS, Writer

BURST = 5.0
PER_SECOND = 1.0
SWEPT_ABOVE = 256
"""Objects with a status written lately that are remembered without looking for older ones."""
ATTEMPTS = 5
"""How often a status is written upon what others made of the object in the meantime."""


class StatusWriter:
    """Server-side apply of whole statuses.

    Each object may change its status five times at once and then once a second: after an outage
    everything changes at the same time, and the API server has just come back.

    Args:
        client: reads an object again after a conflict.
        writer: fences.
        own_writes: remembers what was written.
        newest: the newest known copy of an object, by kind and key.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        client: KubeClient,
        writer: Writer,
        own_writes: OwnWrites,
        *,
        newest: Callable[[str, str], dict[str, Any] | None],
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._writer = writer
        self._own_writes = own_writes
        self._newest = newest
        self._clock = clock
        self._allowance: dict[str, tuple[float, float]] = {}
        self._sweep_at = SWEPT_ABOVE

    async def write(
        self,
        item: dict[str, Any],
        *,
        before: ApiModel,
        after: ApiModel,
        manager: str = STATUS,
        guarded: bool = False,
    ) -> float | None:
        """Write `after` unless it equals `before` in what is ours.

        Args:
            item: the object as it was observed.
            before: its status as observed.
            after: the status to have.
            manager: the field manager.
            guarded: refuse (409) when anyone wrote the object since it was observed. Otherwise
                others may have written it, as long as its spec and its status as we read it are
                those that were observed.

        Returns:
            Seconds to wait before trying again, or None when nothing is left to write.

        Raises:
            KubeError: 409, it is another object by now; or the API server refused.
        """
        kind = item["kind"]
        if own_status(kind, after) == own_status(kind, before):
            return None
        metadata = item["metadata"]
        wait = 0.0 if guarded else self._take(metadata["uid"])
        if wait > 0:
            return wait
        target = {"name": metadata["name"]}
        if metadata.get("namespace"):
            target["namespace"] = metadata["namespace"]
        manifest = {
            "apiVersion": item["apiVersion"],
            "kind": item["kind"],
            "metadata": target,
            "status": after.to_manifest(),
        }
        key = "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)
        seen = item
        if not guarded:
            # Others may have written it while this status was decided upon: a conflict less.
            newest = self._newest(kind, key)
            if newest is not None and _means_the_same(newest, item, before):
                seen = newest
        written = await self._apply(
            manifest, seen, before=before, manager=manager, attempts=1 if guarded else ATTEMPTS
        )
        self._own_writes.remember(item["kind"], key, trim_object(written))
        return None

    async def _apply(
        self,
        manifest: dict[str, Any],
        seen: dict[str, Any],
        *,
        before: ApiModel,
        manager: str,
        attempts: int,
    ) -> dict[str, Any]:
        try:
            return await self._writer.apply(
                manifest, manager=manager, seen=seen, subresource="status"
            )
        except KubeError as error:
            if not error.conflict or attempts == 1:
                raise
            metadata = seen["metadata"]
            path = object_path(seen["kind"], metadata.get("namespace", ""), metadata["name"])
            live = await self._client.request("GET", path)
            if not _means_the_same(live, seen, before):
                raise
        return await self._apply(
            manifest, live, before=before, manager=manager, attempts=attempts - 1
        )

    def _take(self, uid: str) -> float:
        now = self._clock()
        if len(self._allowance) >= self._sweep_at:
            self._forget_full(now)
        left, at = self._allowance.get(uid, (BURST, now))
        left = min(BURST, left + (now - at) * PER_SECOND)
        if left < 1.0:
            self._allowance[uid] = (left, now)
            return (1.0 - left) / PER_SECOND
        self._allowance[uid] = (left - 1.0, now)
        return 0.0

    def _forget_full(self, now: float) -> None:
        """Forget objects whose allowance is whole again, be they there or gone.

        Twice as many as are left may come before the next time, so that each costs O(1).
        """
        whole_since = now - BURST / PER_SECOND
        self._allowance = {
            uid: (left, at) for uid, (left, at) in self._allowance.items() if at > whole_since
        }
        self._sweep_at = max(SWEPT_ABOVE, 2 * len(self._allowance))


def _means_the_same(live: dict[str, Any], seen: dict[str, Any], before: ApiModel) -> bool:
    """Whether a status planned upon one copy of an object fits another."""
    facts = [(one["metadata"]["uid"], one["metadata"].get("generation")) for one in (live, seen)]
    if facts[0] != facts[1]:
        return False
    try:
        status = type(before).model_validate(live.get("status") or {}, by_alias=True)
    except ValueError:
        return False
    kind = str(seen["kind"])
    return own_status(kind, status) == own_status(kind, before)
