"""Who is calling: the gateway's signed identity, checked on every request.

The engine holds public keys only, so nothing in its namespace can mint an identity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fleetward_api.errors import IdentityError
from fleetward_api.identity import IDENTITY_HEADER, LEEWAY_S, verify_identity
from fleetward_api.replay import ReplayGuard
from fleetward_engine.server.errors import ApiError, unavailable
from fleetward_engine.server.trust import TrustMissing, TrustStore

LOCAL_TENANT = "local"


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated facts that bound cache reuse.

    ``permission_scope`` is the digest of all permission scopes together, ``permission_scopes`` of
    each; ``floors`` of tenant, user, permission scopes and document tags, as the gateway knew them;
    ``priority`` and ``weight`` of the tenant; ``deadline_ms`` that the request has left, 0 for no
    deadline.
    """

    tenant: str
    tenant_uid: str = ""
    user: str = ""
    session: str = ""
    permission_scope: str = ""
    permission_scopes: tuple[str, ...] = ()
    document_tags: tuple[str, ...] = ()
    floors: tuple[int, int, int, int] = (0, 0, 0, 0)
    retention_class: str = ""
    priority: int = 0
    weight: int = 1
    deadline_ms: int = 0

    def deadline(self, arrival: float) -> float:
        """When the request that arrived then is late, on the same clock; infinity for never."""
        return arrival + self.deadline_ms / 1000 if self.deadline_ms else math.inf


class Authenticator(Protocol):
    """Turns a request's headers into a caller."""

    def authenticate(self, header: str | None) -> Caller:
        """The caller named by the identity header; an `ApiError` 401 when there is none."""


class LocalAuthenticator:
    """``--insecure-local``: one tenant, no proof asked for."""

    def authenticate(self, header: str | None) -> Caller:
        """Every request is the local tenant's, whatever it says."""
        del header
        return Caller(tenant=LOCAL_TENANT)


class GatewayAuthenticator:
    """Accepts identities signed by the gateway for this service, each once."""

    def __init__(
        self,
        trust: TrustStore,
        *,
        service_uid: str,
        wall: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._trust = trust
        self._service_uid = service_uid
        self._wall = wall
        self._clock = clock
        self._seen = ReplayGuard(LEEWAY_S)

    def authenticate(self, header: str | None) -> Caller:
        """The caller of a token that is genuine, in time, ours and not seen before.

        Raises:
            ApiError: 401 that says what is wrong with it; 503 while no gateway key is mounted.
        """
        if not header:
            message = f"The {IDENTITY_HEADER} header is missing: call the gateway, not the engine."
            raise _unauthorised("missing", message)
        try:
            keys = self._trust.current(self._clock()).gateways
        except TrustMissing as fault:
            raise unavailable(f"No gateway key: {fault}", code="trust_unavailable") from fault
        now = self._wall()
        try:
            claims = verify_identity(
                header, *keys, service_uid=self._service_uid, now=now, leeway=LEEWAY_S
            )
        except IdentityError as fault:
            raise _unauthorised(fault.code, str(fault)) from fault
        if not self._seen.accept(claims.request_id, claims.expires_at, now):
            raise _unauthorised("replayed", "This identity has been used before.")
        return Caller(
            tenant=claims.tenant,
            tenant_uid=claims.tenant_uid,
            user=claims.user,
            session=claims.session,
            permission_scope=claims.permission_scope,
            permission_scopes=claims.each_permission_scope,
            document_tags=claims.document_tags,
            floors=claims.floors.as_tuple(),
            retention_class=claims.retention_class,
            priority=claims.priority,
            weight=claims.weight,
            deadline_ms=claims.deadline_ms,
        )


def _unauthorised(code: str, message: str) -> ApiError:
    return ApiError(401, message, code=f"identity_{code}")
