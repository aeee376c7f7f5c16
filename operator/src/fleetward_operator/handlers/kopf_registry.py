"""kopf: the process's life cycle and logging in. Nothing else.

No handler of our kinds: each would have kopf watch what the informers watch already, and a watch of
kopf's that is answered 410, or is told of an error of the server's, ends the process. No index, no
finalizer, no posting, no peering either.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import kopf

from fleetward_operator.handlers.app import App

FIRST_BACKOFFS_S = (1, 1, 2, 3)
LAST_BACKOFF_S = 5


class Backoffs(Iterable[int]):
    """Delays without an end: kopf ends the process when it runs out of them."""

    def __iter__(self) -> Iterator[int]:
        """A fresh series for each call that fails."""
        return itertools.chain(FIRST_BACKOFFS_S, itertools.repeat(LAST_BACKOFF_S))


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


def build_settings() -> kopf.OperatorSettings:
    """Kopf's settings: its one call, at the start, is tried for as long as it takes."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.networking.request_timeout = 20
    settings.networking.connect_timeout = 5
    settings.networking.error_backoffs = Backoffs()
    settings.process.ultimate_exiting_timeout = 20
    return settings
