"""Writes statuses: only when they differ, and never in a storm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleetward_api.resources.base import ApiModel
from fleetward_operator.edges.own_writes import OwnWrites
from fleetward_operator.edges.store import trim_object
from fleetward_operator.edges.writer import STATUS, Writer

BURST = 5.0
PER_SECOND = 1.0


class StatusWriter:
    """Server-side apply of whole statuses.

    Each object may change its status five times at once and then once a second: after an outage
    everything changes at the same time, and the API server has just come back.
    """

    def __init__(
        self, writer: Writer, own_writes: OwnWrites, *, clock: Callable[[], float]
    ) -> None:
        self._writer = writer
        self._own_writes = own_writes
        self._clock = clock
        self._allowance: dict[str, tuple[float, float]] = {}

    async def write(
        self,
        item: dict[str, Any],
        *,
        before: ApiModel,
        after: ApiModel,
        manager: str = STATUS,
        guarded: bool = False,
    ) -> float | None:
        """Write `after` unless it equals `before`.

        Args:
            item: the object as it was observed.
            before: its status as observed.
            after: the status to have.
            manager: the field manager.
            guarded: refuse (409) when anyone wrote the object since it was observed.

        Returns:
            Seconds to wait before trying again, or None when nothing is left to write.
        """
        if after == before:
            return None
        metadata = item["metadata"]
        wait = 0.0 if guarded else self._take(metadata["uid"])
        if wait > 0:
            return wait
        target = {"name": metadata["name"], "uid": metadata["uid"]}
        if metadata.get("namespace"):
            target["namespace"] = metadata["namespace"]
        if guarded:
            target["resourceVersion"] = metadata["resourceVersion"]
        manifest = {
            "apiVersion": item["apiVersion"],
            "kind": item["kind"],
            "metadata": target,
            "status": after.to_manifest(),
        }
        written = await self._writer.apply(manifest, manager=manager, subresource="status")
        key = "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)
        self._own_writes.remember(item["kind"], key, trim_object(written))
        return None

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._allowance.pop(uid, None)

    def _take(self, uid: str) -> float:
        now = self._clock()
        left, at = self._allowance.get(uid, (BURST, now))
        left = min(BURST, left + (now - at) * PER_SECOND)
        if left < 1.0:
            self._allowance[uid] = (left, now)
            return (1.0 - left) / PER_SECOND
        self._allowance[uid] = (left - 1.0, now)
        return 0.0
