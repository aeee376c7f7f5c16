"""The claims of one request, before they are signed."""

from __future__ import annotations

from dataclasses import dataclass

from fleetward_api.floors import Floors
from fleetward_api.identity import LIFETIME_S, IdentityClaims, IdentityFloors
from fleetward_api.owner import Owner, RequestFloors, owner_of
from fleetward_gateway.admission.facts import ServiceFacts, TenantFacts
from fleetward_gateway.admission.subject import SubjectDigests

NOBODY = SubjectDigests()


@dataclass(frozen=True, slots=True)
class Authorisation:
    """What was decided once for a request; every try mints its own token from it.

    `deadline` is on the gateway's monotonic clock, seconds; None for none. `owner` names every
    scope that the request is in, for fences.
    The floors are those known when the request was authorised. A second try must carry the same
    ones: with newer floors, content that was authorised before a purge could be cached after it.
    """

    tenant: TenantFacts
    service: ServiceFacts
    model: str
    floors: RequestFloors
    owner: Owner
    retention_class: str
    subject: SubjectDigests = NOBODY
    deadline: float | None = None


def authorise(
    tenant: TenantFacts,
    service: ServiceFacts,
    *,
    model: str,
    subject: SubjectDigests,
    floors: Floors,
    retention_class: str,
    deadline: float | None,
) -> Authorisation:
    """Fix the facts of a request at this moment."""
    scopes, tags = subject.permission_scopes, subject.document_tags
    known = floors.of_request(
        tenant.name, user=subject.user, permission_scopes=scopes, document_tags=tags
    )
    owner = owner_of(
        tenant.name,
        user=subject.user,
        permission_scopes=scopes,
        document_tags=tags,
        floors=known,
        known=floors,
    )
    return Authorisation(
        tenant, service, model, known, owner, retention_class, subject=subject, deadline=deadline
    )


def build_claims(
    authorisation: Authorisation, *, jti: str, now: float, deadline_ms: int
) -> IdentityClaims:
    """The claims of one try.

    Args:
        authorisation: of the request.
        jti: never used before.
        now: epoch seconds.
        deadline_ms: what the request has left, 0 for no deadline.
    """
    tenant, user, permission_scope, document_tag = authorisation.floors
    subject = authorisation.subject
    return IdentityClaims(
        service_uid=authorisation.service.uid,
        tenant=authorisation.tenant.name,
        tenant_uid=authorisation.tenant.uid,
        user=subject.user,
        session=subject.session,
        permission_scope=subject.permission_scope,
        # One alone is the same as all together.
        permission_scopes=subject.permission_scopes if len(subject.permission_scopes) > 1 else (),
        document_tags=subject.document_tags,
        floors=IdentityFloors(
            tenant=tenant, user=user, permission_scope=permission_scope, document_tag=document_tag
        ),
        priority=authorisation.tenant.priority,
        weight=authorisation.tenant.weight,
        retention_class=authorisation.retention_class,
        deadline_ms=deadline_ms,
        request_id=jti,
        issued_at=int(now),
        expires_at=int(now) + LIFETIME_S,
    )
