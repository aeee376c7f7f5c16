"""Who is calling, and may they: the decisions of one request, on the view of the moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fleetward_api.api_key import MAX_KEY_CHARS
from fleetward_api.openai import CODE_INVALID_API_KEY, CODE_NO_REPLICA
from fleetward_gateway.admission.deadline import HEADER as DEADLINE_HEADER
from fleetward_gateway.admission.deadline import read_deadline
from fleetward_gateway.admission.facts import ServiceFacts, TenantFacts
from fleetward_gateway.admission.identity import Authorisation, authorise
from fleetward_gateway.admission.keyring import Grant, KeyHasher, find_grant
from fleetward_gateway.admission.retention import HEADER, choose_class
from fleetward_gateway.admission.subject import (
    SESSION_HEADER,
    TAGS_HEADER,
    USER_HEADER,
    Subject,
    SubjectDigests,
    digest_subject,
    read_name,
    read_tags,
)
from fleetward_gateway.cluster.view import ClusterView
from fleetward_gateway.metrics import Metrics
from fleetward_gateway.problem import Problem, model_not_found
from fleetward_gateway.proxy.asgi import RequestHead
from fleetward_gateway.proxy.body import Asked

_CHALLENGE = ((b"www-authenticate", b"Bearer"),)
_RETENTION_HEADER = HEADER.lower().encode()
_DEADLINE_HEADER = DEADLINE_HEADER.lower().encode()
_USER_HEADER = USER_HEADER.lower().encode()
_SESSION_HEADER = SESSION_HEADER.lower().encode()
_TAGS_HEADER = TAGS_HEADER.lower().encode()


class Gate:
    """Authentication and access.

    Args:
        view: of the cluster.
        hasher: of API keys; the same that the watch of Secrets uses.
        metrics: counts refusals.
        wall_clock: epoch seconds, for the expiry of keys.
        synced: whether the view is complete; before, a good key could look unknown.
    """

    def __init__(
        self,
        view: ClusterView,
        *,
        hasher: KeyHasher,
        metrics: Metrics,
        wall_clock: Callable[[], float],
        synced: Callable[[], bool],
    ) -> None:
        self._view = view
        self._hasher = hasher
        self._metrics = metrics
        self._wall_clock = wall_clock
        self._synced = synced

    def authenticate(self, head: RequestHead) -> Grant:
        """What the API key that the request carries opens.

        Raises:
            Problem: 401, the same for an unknown, an expired and a revoked key; 503 before the
                first sync.
        """
        if not self._synced():
            raise Problem(
                503, CODE_NO_REPLICA, "The gateway is starting; try again.", retry_after_s=2
            )
        scheme, _, key = head.get(b"authorization").partition(b" ")
        key = key.strip()
        if scheme.lower() != b"bearer" or not key:
            self._metrics.auth_failed("missing")
            raise _unauthenticated("No API key: send it as 'Authorization: Bearer KEY'.")
        if len(key) > MAX_KEY_CHARS:
            self._metrics.auth_failed("unknown")
            raise _unauthenticated("The API key is not valid.")
        found = find_grant(self._view.key_index, self._hasher.digest(key), now=self._wall_clock())
        if not isinstance(found, Grant):
            self._metrics.auth_failed(found)
            raise _unauthenticated("The API key is not valid.")
        return found

    def models_of(self, tenant: TenantFacts) -> Mapping[str, ServiceFacts]:
        """What the tenant may call, by served name."""
        return self._view.catalogue.view(tenant)

    def authorise(
        self, grant: Grant, asked: Asked, head: RequestHead, *, began: float
    ) -> Authorisation:
        """Fix service, subject, floors, retention class and deadline of a request.

        `began` is when its head came, monotonic seconds.

        Raises:
            Problem: 404 for a model that the tenant may not call, 400 for a subject, a retention
                class or a deadline.
        """
        tenant = grant.tenant
        service = self.models_of(tenant).get(asked.model)
        if service is None:
            raise model_not_found(asked.model)
        requested = head.get(_RETENTION_HEADER).decode("latin-1")
        policy = self._view.policy_of(service) if requested else None
        retention_class = choose_class(requested, tenant.retention_class, policy)
        return authorise(
            tenant,
            service,
            model=asked.model,
            subject=self._subject(grant, asked, head),
            floors=self._view.floors,
            retention_class=retention_class,
            deadline=read_deadline(head.get(_DEADLINE_HEADER), began=began),
        )

    def _subject(self, grant: Grant, asked: Asked, head: RequestHead) -> SubjectDigests:
        """On whose behalf it is asked; a header counts before the body."""
        keys = self._view.own_keys
        if keys is None:
            raise RuntimeError("a request was admitted before the digest key was known")
        user = read_name(head.all(_USER_HEADER), header=USER_HEADER)
        subject = Subject(
            user=asked.user if user is None else user,
            session=read_name(head.all(_SESSION_HEADER), header=SESSION_HEADER) or "",
            permission_scopes=grant.key.permission_scopes,
            document_tags=read_tags(head.all(_TAGS_HEADER)),
        )
        return digest_subject(keys.digest, grant.tenant.name, subject)


def _unauthenticated(message: str) -> Problem:
    return Problem(401, CODE_INVALID_API_KEY, message, headers=_CHALLENGE)
