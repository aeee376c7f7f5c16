"""Ready engine addresses, read from EndpointSlices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

ENGINE_PORT_NAME = "http"
SERVICE_LABEL = "fleetward.io/service"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One engine pod.

    Attributes:
        uid: the pod's uid, or its address where the slice names no pod; counts are kept by it.
        address: `host:port`, ready for a URL.
    """

    uid: str
    address: str


def endpoints_of_slice(slice_: Mapping[str, Any]) -> tuple[Endpoint, ...]:
    """The endpoints of one slice that may take new requests.

    A missing `ready` condition means ready, as the EndpointSlice API says; a terminating endpoint
    is never ready. Slices of host names, and ports that are not TCP, are passed over.
    """
    family = slice_.get("addressType")
    port = _port_of(slice_.get("ports") or ())
    if port is None or family not in {"IPv4", "IPv6"}:
        return ()
    found = []
    for item in slice_.get("endpoints") or ():
        conditions = item.get("conditions") or {}
        addresses = item.get("addresses") or ()
        if not addresses or conditions.get("ready") is False or conditions.get("terminating"):
            continue
        host = f"[{addresses[0]}]" if family == "IPv6" else addresses[0]
        address = f"{host}:{port}"
        uid = (item.get("targetRef") or {}).get("uid") or address
        found.append(Endpoint(uid, address))
    return tuple(found)


def _port_of(ports: Iterable[Mapping[str, Any]]) -> int | None:
    usable = [p for p in ports if p.get("port") and p.get("protocol", "TCP") == "TCP"]
    named = [p for p in usable if p.get("name") == ENGINE_PORT_NAME]
    if named:
        return int(named[0]["port"])
    # A Service with a single port need not name it; with several, guessing could hit another API.
    return int(usable[0]["port"]) if len(usable) == 1 else None


@dataclass(slots=True)
class EndpointTable:
    """The ready endpoints of each service, kept up slice by slice."""

    _slices: dict[tuple[str, str], dict[str, tuple[Endpoint, ...]]] = field(default_factory=dict)
    _ready: dict[tuple[str, str], tuple[Endpoint, ...]] = field(default_factory=dict)

    def replace(
        self, key: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None
    ) -> None:
        """Take in a change of one slice; `key` is `namespace/name`.

        All of it is read before anything changes: a slice that cannot be read takes no ready
        endpoint away. Requests see one state or the other.
        """
        before = None if old is None else _service_of(old)
        after = None if new is None else _service_of(new)
        found = () if new is None else endpoints_of_slice(new)
        if before is not None and before in self._slices:
            self._slices[before].pop(key, None)
            if before != after:
                self._recount(before)
        if after is not None:
            self._slices.setdefault(after, {})[key] = found
            self._recount(after)

    def ready(self, namespace: str, name: str) -> tuple[Endpoint, ...]:
        """The ready endpoints of a service; empty when it is unknown or scaled to zero."""
        return self._ready.get((namespace, name), ())

    def _recount(self, service: tuple[str, str]) -> None:
        slices = self._slices[service]
        # While the controller moves an endpoint between slices it may stand in both.
        merged = {e.uid: e for endpoints in slices.values() for e in endpoints}
        if merged:
            self._ready[service] = tuple(merged.values())
        else:
            self._ready.pop(service, None)
        if not slices:
            del self._slices[service]


def _service_of(slice_: Mapping[str, Any]) -> tuple[str, str] | None:
    metadata = slice_["metadata"]
    name = (metadata.get("labels") or {}).get(SERVICE_LABEL)
    return (metadata["namespace"], name) if name else None
