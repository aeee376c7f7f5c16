"""kopf: the process's life cycle, logging in, and triggers on our own kinds. Nothing else.

No index, no finalizer, no posting, no peering: what kopf keeps cannot be relied on after a relist,
so its events only enqueue keys, and the informers hold the truth.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import kopf

from fleetward_operator.handlers.app import App

GROUP, VERSION = "fleetward.io", "v1alpha1"
TRIGGERS = {
    "inferenceservices": "service",
    "cachepolicies": "policy",
    "tenants": "tenant",
    "cachepurges": "purge",
}
SERVER_TIMEOUT_S = 300
BACKOFFS_S = (1, 1, 2, 3, 5)


def build_registry(app: App) -> kopf.OperatorRegistry:
    """Handlers of one replica."""
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def start(**_: Any) -> None:
        await app.start()

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        await app.stop()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        in_cluster = kopf.login_with_service_account(**kwargs)
        if in_cluster is not None:
            return by_address(in_cluster, os.environ)
        return kopf.login_with_kubeconfig(**kwargs)

    for plural, worker in TRIGGERS.items():
        kopf.on.event(GROUP, VERSION, plural, registry=registry, id=f"enqueue-{worker}")(
            _enqueuer(app, worker)
        )
    return registry


def by_address(
    connection: kopf.ConnectionInfo, environment: Mapping[str, str]
) -> kopf.ConnectionInfo:
    """The same connection by the API server's address.

    kopf names it by cluster DNS, which may not be there.
    """
    host = environment.get("KUBERNETES_SERVICE_HOST")
    if not host:
        return connection
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    bracketed = f"[{host}]" if ":" in host else host
    return dataclasses.replace(connection, server=f"https://{bracketed}:{port}")


def _enqueuer(app: App, worker: str) -> Callable[..., Any]:
    async def enqueue(name: str, namespace: str | None, **_: Any) -> None:
        app.enqueue(worker, f"{namespace}/{name}" if namespace else name)

    return enqueue


def build_settings() -> kopf.OperatorSettings:
    """Kopf's settings: blind for 5 s at most after the API server comes back."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.watching.server_timeout = SERVER_TIMEOUT_S
    settings.watching.client_timeout = SERVER_TIMEOUT_S + 30
    settings.watching.connect_timeout = 5
    settings.networking.request_timeout = 20
    settings.networking.connect_timeout = 5
    settings.networking.error_backoffs = BACKOFFS_S
    settings.queueing.error_delays = BACKOFFS_S
    settings.process.ultimate_exiting_timeout = 20
    return settings
