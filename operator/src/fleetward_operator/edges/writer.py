"""The only way to write to the API server: every call asks the lease first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fleetward_kube import KubeClient
from fleetward_kube.client import APPLY, MERGE_PATCH
from fleetward_operator.edges.kinds import collection_path, object_path
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.errors import NotLeading
from fleetward_operator.manifests.manifest import Manifest

CHILDREN = "fleetward-children"
STATUS = "fleetward-status"
BUNDLE = "fleetward-bundle"
PURGE = "fleetward-purge"
KEYS = "fleetward-keys"


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

    async def apply(
        self, manifest: Manifest, *, manager: str, subresource: str = ""
    ) -> dict[str, Any]:
        """Server-side apply with force: `manager` owns exactly the fields it names."""
        metadata = manifest["metadata"]
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
        path = object_path(manifest["kind"], metadata.get("namespace", ""), metadata["name"])
        query = {"fieldManager": manager}
        return await self._send("PUT", path, manifest["kind"], body=manifest, query=query)

    async def merge(
        self, kind: str, namespace: str, name: str, *, patch: Manifest, manager: str
    ) -> dict[str, Any]:
        """JSON merge patch; a resourceVersion in it is a precondition."""
        return await self._send(
            "PATCH",
            object_path(kind, namespace, name),
            kind,
            body=patch,
            query={"fieldManager": manager},
            content_type=MERGE_PATCH,
        )

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str) -> dict[str, Any]:
        """Delete exactly this incarnation of an object."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
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
        if not self._may_write():
            raise NotLeading(f"{method} {path} was not sent: the lease is not ours")
        self._metrics.writes.labels(kind=kind, verb=method.lower()).inc()
        return await self._client.request(
            method,
            path,
            query=query,
            body=body,
            content_type=content_type,
            timeout=self._timeout_s,
        )
