"""ConfigMaps of public keys: the release's own, and each service's copy of it."""

from __future__ import annotations

from fleetward_operator.manifests.desired import DesiredService, PublicKeys
from fleetward_operator.manifests.labels import child_metadata, release_labels
from fleetward_operator.manifests.manifest import Manifest
from fleetward_operator.manifests.names import trust_name

RELEASE_TRUST = "fleetward-trust"


def build_trust(desired: DesiredService) -> Manifest:
    """A service's copy, mounted in its engines. Public keys only: nothing here can forge."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(desired, trust_name(desired.name)),
        "data": _data(desired.keys),
    }


def build_release_trust(keys: PublicKeys, *, namespace: str) -> Manifest:
    """The release's ConfigMap, which gateways and evidence verifiers read."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": RELEASE_TRUST,
            "namespace": namespace,
            "labels": release_labels(RELEASE_TRUST),
        },
        "data": _data(keys),
    }


def _data(keys: PublicKeys) -> dict[str, str]:
    data = {
        "operator.pub": keys.operator,
        "sealing.pub": keys.sealing,
        "gateway.pub": keys.gateway,
    }
    if keys.gateway_overlap:
        # An entry of its own: engines of the version before read `gateway.pub` as one key.
        data["gateway-overlap.pub"] = keys.gateway_overlap
    return data
