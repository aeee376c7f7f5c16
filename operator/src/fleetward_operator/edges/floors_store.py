"""The floors: one ConfigMap, each write on condition that nobody wrote in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fleetward_api.canonical import canonical_bytes
from fleetward_api.floors import MAX_FINER_FLOORS, Floors, merge_floors
from fleetward_api.scope import Scope
from fleetward_kube import KubeClient, KubeError
from fleetward_operator.edges.kinds import object_path
from fleetward_operator.edges.writer import KEYS, Writer
from fleetward_operator.errors import StateLost
from fleetward_operator.manifests.labels import release_labels

FLOORS = "fleetward-floors"
FLOORS_KEY = "floors.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFloors:
    """Floors as they stand in the API server, and the resource version of that write."""

    floors: Floors
    version: str


class FloorsStore:
    """Reads and raises floors. `current` is the last version that we read or wrote."""

    def __init__(self, client: KubeClient, writer: Writer, *, namespace: str) -> None:
        self._client = client
        self._writer = writer
        self._namespace = namespace
        self._lock = asyncio.Lock()
        self._current: StoredFloors | None = None
        self._known = Floors()

    @property
    def current(self) -> StoredFloors:
        """The floors in force.

        Raises:
            StateLost: they were never read.
        """
        if self._current is None:
            raise StateLost("the floors were not read yet", retryable=True)
        return self._current

    async def read(self) -> StoredFloors | None:
        """What the API server holds; None when it holds no readable floors.

        Floors only grow: where somebody lowered one, what we knew is kept and written back.
        """
        found = await self._get()
        stored = _parse(found) if found else None
        before, self._current = self._current, stored
        if stored is not None:
            self._known = merge_floors(self._known, stored.floors)
        if stored is None or before is None:
            return stored
        merged = merge_floors(before.floors, stored.floors)
        if merged != stored.floors:
            above = max(before.floors.version, stored.floors.version) + 1
            repaired = merged.model_copy(update={"version": above})
            manifest = self._manifest(repaired, version=stored.version)
            return self._took(await self._writer.replace(manifest, manager=KEYS))
        return stored

    async def start_over(self, floors: Floors) -> StoredFloors:
        """Write floors where there are none, or none that can be read.

        What this process has seen of the lost ones is in them, whoever else forgot.
        """
        async with self._lock:
            if self._known.version:
                floors = merge_floors(floors, self._known)
                floors = floors.model_copy(update={"version": floors.version + 1})
            found = await self._get()
            manifest = self._manifest(floors, version="")
            if found is None:
                written = await self._writer.create(manifest, manager=KEYS)
            else:
                manifest["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
                written = await self._writer.replace(manifest, manager=KEYS)
            return self._took(written)

    async def raise_floor(self, scope: Scope) -> StoredFloors:
        """Raise one scope's floor: the write whose resource version is a purge's cut.

        Raises:
            StateLost: the ConfigMap is gone or unreadable; the epoch must be rotated first.
            KubeError: the API server refused.
        """
        async with self._lock:
            for _ in range(5):
                with contextlib.suppress(_Outdated):
                    return await self._raise_once(scope)
                await self.read()
            raise StateLost("the floors are written by somebody else too", retryable=True)

    async def lift(self, above: int, *, tenants: Iterable[str]) -> None:
        """Put the version above one that a gateway still holds from floors that were lost.

        Each raise counts the version up too, so no lost floor can have been larger than it: with
        every tenant's floor there, none that a gateway remembers is above ours.
        """
        async with self._lock:
            before = self.current
            if before.floors.version > above:
                return
            floors = before.floors.tenants
            lifted = before.floors.model_copy(
                update={
                    "version": above + 1,
                    "tenants": {
                        name: max(above, floors.get(name, 0)) for name in {*floors, *tenants}
                    },
                }
            )
            manifest = self._manifest(lifted, version=before.version)
            self._took(await self._writer.replace(manifest, manager=KEYS))

    async def _raise_once(self, scope: Scope) -> StoredFloors:
        if self._current is None and await self.read() is None:
            raise StateLost(f"ConfigMap {FLOORS} is gone", retryable=True)
        before = self.current
        # Bounded first: the entry that is being raised must not be the one that is folded away.
        raised = before.floors.bounded(MAX_FINER_FLOORS - 1).raised(scope)
        try:
            written = await self._writer.replace(
                self._manifest(raised, version=before.version), manager=KEYS
            )
        except KubeError as error:
            if error.not_found:
                self._current = None
                raise StateLost(f"ConfigMap {FLOORS} is gone", retryable=True) from error
            if error.conflict:
                raise _Outdated from error
            raise
        return self._took(written)

    def _took(self, written: dict[str, Any]) -> StoredFloors:
        taken = _parse(written)
        if taken is None:
            raise StateLost(f"ConfigMap {FLOORS} came back unreadable")
        self._current = taken
        self._known = merge_floors(self._known, taken.floors)
        return taken

    async def _get(self) -> dict[str, Any] | None:
        try:
            return await self._client.request(
                "GET", object_path("ConfigMap", self._namespace, FLOORS)
            )
        except KubeError as error:
            if error.not_found:
                return None
            raise

    def _manifest(self, floors: Floors, *, version: str) -> dict[str, Any]:
        metadata: dict[str, Any] = {
            "name": FLOORS,
            "namespace": self._namespace,
            "labels": release_labels(FLOORS),
        }
        if version:
            metadata["resourceVersion"] = version
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {FLOORS_KEY: canonical_bytes(floors).decode()},
        }


class _Outdated(Exception):
    """Someone wrote in between."""


def _parse(found: dict[str, Any]) -> StoredFloors | None:
    try:
        floors = Floors.model_validate_json((found.get("data") or {})[FLOORS_KEY])
    except (KeyError, ValueError):
        return None
    return StoredFloors(floors=floors, version=found["metadata"]["resourceVersion"])
