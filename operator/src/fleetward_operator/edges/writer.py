"""The only way to write to the API server: every call asks the lease first.

What was sent in time may still arrive late, when another replica leads: held up on the way, or in
an API server that was paused. So each write also names what it was decided upon, and bounces off
anything newer:

- an apply names the uid and resource version of the object it was planned from, or that there was
  none (`ABSENT`); a replace and a merge name the resource version, a delete both;
- a create is refused where the name is taken.

Events alone are made under names that are always free. One that is late says what a leader did
while it led, and nothing acts on it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fleetward_kube import KubeClient, KubeError
from fleetward_kube.client import APPLY, MERGE_PATCH
from fleetward_operator.edges.kinds import collection_path, object_path
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.errors import NotLeading
from fleetward_operator.manifests.manifest import Manifest
from fleetward_operator.manifests.names import BUNDLE_MANAGER, CHILDREN_MANAGER

CHILDREN = CHILDREN_MANAGER
STATUS = "fleetward-status"
BUNDLE = BUNDLE_MANAGER
PURGE = "fleetward-purge"
KEYS = "fleetward-keys"

ABSENT = "1"
"""A resource version that no object has ever had: etcd's first is 2. An apply that names it makes
an object and never changes one."""

DOUBT_S = 15.0
"""How long a write without an answer may still arrive, as far as giving the lease back goes: no
longer than a lease that is not given back takes to run out."""


class Writer:
    """Writes with a field manager per concern, fenced by the lease.

    Args:
        client: an open client.
        may_write: whether the lease is ours right now; asked before every send.
        metrics: counts writes by kind and verb.
        timeout_s: of each call; below the lease's margin, so that a late answer is still ours.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        may_write: Callable[[], bool],
        metrics: Metrics,
        timeout_s: float,
    ) -> None:
        self._client = client
        self._may_write = may_write
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._ended = False
        self._doubt_until = 0.0

    def leads(self) -> bool:
        """Whether anything may be sent at this instant, here or to members."""
        return not self._ended and self._may_write()

    async def drain(self) -> bool:
        """Send nothing more, and wait for the writes in flight, none longer than its timeout.

        Returns:
            Whether all writes of late have been answered, so that none can arrive any more. If
            not, the lease must run out by itself.
        """
        self._ended = True
        await self._idle.wait()
        return time.monotonic() >= self._doubt_until

    async def apply(
        self,
        manifest: Manifest,
        *,
        manager: str,
        seen: Mapping[str, Any] | None,
        subresource: str = "",
    ) -> dict[str, Any]:
        """Server-side apply with force: `manager` owns exactly the fields it names.

        Args:
            manifest: the fields to own.
            manager: the field manager.
            seen: the object that this was decided upon, None when there was none; a 409
                (`KubeError.conflict`) says that it is another one by now.
            subresource: such as `status`.
        """
        metadata = {**manifest["metadata"], **_precondition(seen)}
        manifest = {**manifest, "metadata": metadata}
        path = object_path(
            manifest["kind"],
            metadata.get("namespace", ""),
            metadata["name"],
            subresource=subresource,
        )
        query = {"fieldManager": manager, "force": "true"}
        return await self._send(
            "PATCH", path, manifest["kind"], body=manifest, query=query, content_type=APPLY
        )

    async def create(self, manifest: Manifest, *, manager: str) -> dict[str, Any]:
        """Create; a 409 (`KubeError.conflict`) says that it exists."""
        path = collection_path(manifest["kind"], manifest["metadata"].get("namespace", ""))
        query = {"fieldManager": manager}
        return await self._send("POST", path, manifest["kind"], body=manifest, query=query)

    async def replace(self, manifest: Manifest, *, manager: str) -> dict[str, Any]:
        """Replace; the manifest's resourceVersion is the precondition (409 when it is old)."""
        metadata = manifest["metadata"]
        if not metadata.get("resourceVersion"):
            raise ValueError(f"a replacement of {metadata['name']} names no resource version")
        path = object_path(manifest["kind"], metadata.get("namespace", ""), metadata["name"])
        query = {"fieldManager": manager}
        return await self._send("PUT", path, manifest["kind"], body=manifest, query=query)

    async def merge(
        self, kind: str, namespace: str, name: str, *, patch: Manifest, manager: str
    ) -> dict[str, Any]:
        """JSON merge patch; the resource version that it must name is the precondition."""
        if not patch["metadata"].get("resourceVersion"):
            raise ValueError(f"a patch of {kind} {name} names no resource version")
        return await self._send(
            "PATCH",
            object_path(kind, namespace, name),
            kind,
            body=patch,
            query={"fieldManager": manager},
            content_type=MERGE_PATCH,
        )

    async def delete(
        self, kind: str, namespace: str, name: str, *, seen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Delete an object as it was seen; a 409 says that it is another one by now."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": _precondition(seen),
            "propagationPolicy": "Background",
        }
        return await self._send("DELETE", object_path(kind, namespace, name), kind, body=body)

    async def _send(
        self,
        method: str,
        path: str,
        kind: str,
        *,
        body: Manifest,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        if not self.leads():
            raise NotLeading(f"{method} {path} was not sent: the lease is not ours")
        self._metrics.writes.labels(kind=kind, verb=method.lower()).inc()
        with self._sending():
            return await self._client.request(
                method,
                path,
                query=query,
                body=body,
                content_type=content_type,
                timeout=self._timeout_s,
            )

    @contextmanager
    def _sending(self) -> Iterator[None]:
        self._in_flight += 1
        self._idle.clear()
        answered = False
        try:
            yield
            answered = True
        except KubeError as error:
            answered = error.status != 0
            raise
        finally:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._idle.set()
            if not answered:
                self._doubt_until = time.monotonic() + DOUBT_S


def _precondition(seen: Mapping[str, Any] | None) -> dict[str, str]:
    if seen is None:
        return {"resourceVersion": ABSENT}
    metadata = seen["metadata"]
    return {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
