"""The informers behind the view: which collections, with which selectors, reduced how."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from fleetward_gateway.admission.keyring import KeyHasher
from fleetward_gateway.cluster.trim import (
    trim_config,
    trim_key_secret,
    trim_resource,
    trim_slice,
)
from fleetward_gateway.cluster.view import ClusterView
from fleetward_kube import Informer, KubeClient
from fleetward_kube.informer import Callback, KubeObject

OURS: Final = "/apis/fleetward.io/v1alpha1"
ENGINE_SLICES: Final = "app.kubernetes.io/component=engine"


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Watches:
    """Every informer of the gateway, by what it watches."""

    informers: dict[str, Informer]

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, informer in self.informers.items():
                group.create_task(informer.run(), name=f"watch {name}")

    def unsynced(self) -> list[str]:
        """What has not been listed once yet, with the reason where one is known."""
        return [
            f"{name} ({informer.problem})" if informer.problem else name
            for name, informer in self.informers.items()
            if not informer.synced.is_set()
        ]


def build_watches(
    client: KubeClient,
    view: ClusterView,
    *,
    hasher: KeyHasher,
    namespace: str,
    key_namespace: str,
) -> Watches:
    """Set up the informers; nothing is asked of the API server before `run`.

    Args:
        client: an open client.
        view: what they keep current.
        hasher: turns API keys into digests before they are stored.
        namespace: the release's, with floors, trust and the gateway's own key.
        key_namespace: where the Secrets of API keys are.
    """

    def named(kind: str, name: str) -> Informer:
        return Informer(
            client,
            f"/api/v1/namespaces/{namespace}/{kind}",
            field_selector=f"metadata.name={name}",
            trim=trim_config,
        )

    slices = "/apis/discovery.k8s.io/v1/endpointslices"
    secrets = f"/api/v1/namespaces/{key_namespace}/secrets"
    wanted = {
        "tenants": (Informer(client, f"{OURS}/tenants", trim=trim_resource), view.on_tenant),
        "services": (
            Informer(client, f"{OURS}/inferenceservices", trim=trim_resource),
            view.on_service,
        ),
        "policies": (Informer(client, f"{OURS}/cachepolicies", trim=trim_resource), view.on_policy),
        "keys": (Informer(client, secrets, trim=trim_key_secret(hasher)), view.on_secret),
        "endpoints": (
            Informer(client, slices, label_selector=ENGINE_SLICES, trim=trim_slice),
            view.on_slice,
        ),
        "floors": (named("configmaps", "fleetward-floors"), view.on_floors),
        "trust": (named("configmaps", "fleetward-trust"), view.on_trust),
        "own keys": (named("secrets", "fleetward-gateway-keys"), view.on_own_keys),
    }
    for name, (informer, callback) in wanted.items():
        informer.subscribe(guarded(callback, view, f"watch of {name}"))
    return Watches({name: informer for name, (informer, _) in wanted.items()})


def guarded(callback: Callback, view: ClusterView, kind: str) -> Callback:
    """The callback, whose own failure is a named fault of the object and not only a log line."""

    def told(key: str, old: KubeObject | None, new: KubeObject | None) -> None:
        try:
            callback(key, old, new)
        except Exception:
            logger.exception("%s: %s could not be taken in", kind, key)
            view.unreadable(kind, key)
        else:
            view.readable(kind, key)

    return told
