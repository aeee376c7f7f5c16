"""What is kept of each watched object: little, and of API keys only a keyed digest."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

from fleetward_gateway.admission.keyring import KeyHasher

KubeObject = dict[str, Any]

_METADATA = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "labels")


def trim_resource(item: KubeObject) -> KubeObject:
    """Metadata and spec: a status that changes often is not kept."""
    return {"metadata": _metadata(item), "spec": item.get("spec") or {}}


def trim_config(item: KubeObject) -> KubeObject:
    """A ConfigMap's, or a named Secret's, data."""
    return {"metadata": _metadata(item), "data": item.get("data") or {}}


def trim_slice(item: KubeObject) -> KubeObject:
    """An EndpointSlice without topology hints and zones."""
    endpoints = [
        {
            "addresses": endpoint.get("addresses") or [],
            "conditions": endpoint.get("conditions") or {},
            "targetRef": {"uid": (endpoint.get("targetRef") or {}).get("uid")},
        }
        for endpoint in item.get("endpoints") or ()
    ]
    return {
        "metadata": _metadata(item),
        "addressType": item.get("addressType"),
        "ports": item.get("ports") or [],
        "endpoints": endpoints,
    }


def trim_key_secret(hasher: KeyHasher) -> Callable[[KubeObject], KubeObject]:
    """A Secret of API keys with every entry replaced by its digest, before anything is stored."""

    def trim(item: KubeObject) -> KubeObject:
        data = item.get("data") or {}
        digests = {entry: _digest(hasher, value) for entry, value in data.items()}
        return {"metadata": _metadata(item), "digests": digests}

    return trim


def _digest(hasher: KeyHasher, value: object) -> bytes | None:
    try:
        raw = base64.b64decode(str(value), validate=True)
    except (binascii.Error, ValueError):
        return None
    return hasher.digest_entry(raw)


def _metadata(item: KubeObject) -> KubeObject:
    metadata = item["metadata"]
    return {name: metadata[name] for name in _METADATA if name in metadata}
