"""Where a running purge's state is kept: one ConfigMap each, gone when the purge has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fleetward_api.canonical import canonical_bytes
from fleetward_api.errors import FleetwardError
from fleetward_api.scope import Scope, ScopeWire
from fleetward_kube import KubeClient, KubeError
from fleetward_operator.core.purge.codec import decode_state, encode_state
from fleetward_operator.core.purge.state import PurgeState
from fleetward_operator.edges.kinds import object_path
from fleetward_operator.edges.writer import PURGE, Writer
from fleetward_operator.manifests.labels import release_labels
from fleetward_operator.manifests.names import PURGE_LABEL

STATE_KEY = "state.json"
SCOPE_KEY = "scope.json"
WIDENED_KEY = "widened"
PREFIX = "fleetward-purge-"


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeRecord:
    """What is kept of a running purge: enough to end it when its CachePurge is gone.

    `scope` is None in a record of a release that did not keep it, `widened` says that a finer one
    was asked for; `item` is the ConfigMap.
    """

    name: str
    scope: Scope | None
    state: PurgeState
    item: dict[str, Any]
    widened: bool = False


class PurgeRecords:
    """Reads and writes purge states; each write on condition that nobody wrote in between."""

    def __init__(self, client: KubeClient, writer: Writer, *, namespace: str) -> None:
        self._client = client
        self._writer = writer
        self._namespace = namespace
        self._versions: dict[str, str] = {}

    async def recall(self, purge_uid: str) -> PurgeRecord | None:
        """All that is kept of a running purge; None where nothing is that can be read."""
        path = object_path("ConfigMap", self._namespace, PREFIX + purge_uid)
        try:
            found = await self._client.request("GET", path)
        except KubeError as error:
            if error.not_found:
                self._versions.pop(purge_uid, None)
                return None
            raise
        self._versions[purge_uid] = found["metadata"]["resourceVersion"]
        data = found.get("data") or {}
        try:
            state = decode_state(data.get(STATE_KEY, ""))
        except ValueError:
            return None
        labels = found["metadata"].get("labels") or {}
        name, scope = labels.get(PURGE_LABEL, ""), _scope_in(data.get(SCOPE_KEY, ""))
        about = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": found["metadata"]}
        widened = WIDENED_KEY in data
        return PurgeRecord(name=name, scope=scope, state=state, item=about, widened=widened)

    async def write(
        self,
        purge_uid: str,
        purge_name: str,
        state: PurgeState,
        *,
        scope: Scope | None = None,
        widened: bool = False,
    ) -> None:
        """Keep a state. A 409 (`KubeError.conflict`) says that another leader is at it."""
        manifest = self._manifest(purge_uid, purge_name, state)
        if scope is not None:
            manifest["data"][SCOPE_KEY] = canonical_bytes(scope.to_wire()).decode()
        if widened:
            manifest["data"][WIDENED_KEY] = "true"
        version = self._versions.get(purge_uid)
        if version is None:
            written = await self._writer.create(manifest, manager=PURGE)
        else:
            manifest["metadata"]["resourceVersion"] = version
            written = await self._writer.replace(manifest, manager=PURGE)
        self._versions[purge_uid] = written["metadata"]["resourceVersion"]

    async def remove(self, purge_uid: str) -> None:
        """Forget a purge that has ended; its evidence stays."""
        self._versions.pop(purge_uid, None)
        path = object_path("ConfigMap", self._namespace, PREFIX + purge_uid)
        try:
            found = await self._client.request("GET", path)
            await self._writer.delete("ConfigMap", self._namespace, PREFIX + purge_uid, seen=found)
        except KubeError as error:
            if not error.not_found:
                raise

    def _manifest(self, purge_uid: str, purge_name: str, state: PurgeState) -> dict[str, Any]:
        name = PREFIX + purge_uid
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "namespace": self._namespace,
                "labels": {**release_labels("fleetward-purge"), PURGE_LABEL: purge_name},
            },
            "data": {STATE_KEY: encode_state(state)},
        }


def _scope_in(text: str) -> Scope | None:
    try:
        return Scope.from_wire(ScopeWire.model_validate_json(text))
    except (ValueError, FleetwardError):
        return None
