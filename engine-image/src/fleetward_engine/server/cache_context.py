"""From an authenticated caller and the policy in force to what a request may do with the cache.

The root of every cache key is derived here, from authenticated facts only. Where one of them is
missing, or too old, the request gets no root: it neither reads nor writes any cache. A class that
stores nothing does not read either: what such a request asks must not show in hit counts or timing.
"""

from __future__ import annotations

from fleetward_api.cache_key import (
    ModelFingerprint,
    RootInputs,
    cache_root,
    document_tags_digest,
    public_root,
)
from fleetward_api.owner import Owner, owner_of
from fleetward_engine.admin.policy import PolicyInForce
from fleetward_engine.admin.retention import effective_retention
from fleetward_engine.request import CacheContext, WhyUncached
from fleetward_engine.server.identity import Caller


def cache_context(
    caller: Caller, policy: PolicyInForce, *, model: ModelFingerprint
) -> CacheContext:
    """What the caller's request may read and write."""
    retention = effective_retention(policy.bundle.retention, caller.retention_class)
    why = why_uncached(caller, policy)
    closed = why is not None
    return CacheContext(
        root=None if closed else cache_root(policy.secret, root_inputs(caller, policy, model)),
        owner=request_owner(caller, policy),
        store=not closed,
        idle_ttl_ms=retention.idle_ttl_ms,
        max_ttl_ms=retention.max_ttl_ms,
        retention_class=caller.retention_class,
        public_root=public_root(policy.secret, model)
        if policy.public_blocks and not closed
        else None,
        uncached=why,
    )


def why_uncached(caller: Caller, policy: PolicyInForce) -> WhyUncached | None:
    """Why the caller's request reads and writes no cache; None where it does."""
    if policy.bundle.isolation == "User" and not caller.user:
        return "no-user"
    if policy.bundle.isolation == "Session" and not caller.session:
        return "no-session"
    if effective_retention(policy.bundle.retention, caller.retention_class).store == "None":
        return "not-stored"
    return "purged" if is_behind(caller, policy) else None


def request_owner(caller: Caller, policy: PolicyInForce) -> Owner:
    """Every scope that isolation tells apart and the caller's bytes belong to.

    Where reuse is by tenant, what one user asked may lie in another's blocks, so no block is said
    to be one user's.
    """
    bundle = policy.bundle
    return owner_of(
        caller.tenant,
        user="" if bundle.isolation == "Tenant" else caller.user,
        permission_scopes=caller.permission_scopes if bundle.permission_scopes == "Include" else (),
        document_tags=caller.document_tags,
        floors=caller.floors,
        known=policy.floors,
    )


def is_behind(caller: Caller, policy: PolicyInForce) -> bool:
    """Whether the gateway authorised the request before a fence that this engine has seen."""
    floors = policy.floors.of_request(
        caller.tenant,
        user=caller.user,
        permission_scopes=caller.permission_scopes,
        document_tags=caller.document_tags,
    )
    return any(known < fenced for known, fenced in zip(caller.floors, floors, strict=True))


def root_inputs(caller: Caller, policy: PolicyInForce, model: ModelFingerprint) -> RootInputs:
    """The facts that must all be equal for reuse.

    A session's digest holds its user, so two users' sessions of one name are two subjects.
    """
    tenant, user, permission_scopes, document_tags = caller.floors
    isolation = policy.bundle.isolation
    scoped = policy.bundle.permission_scopes == "Include"
    subjects = {"Tenant": "", "User": caller.user, "Session": caller.session}
    return RootInputs(
        tenant=caller.tenant,
        tenant_uid=caller.tenant_uid,
        isolation_subject=subjects[isolation],
        permission_scope_digest=caller.permission_scope if scoped else "",
        document_tags_digest=document_tags_digest(caller.document_tags),
        floors=(
            tenant,
            0 if isolation == "Tenant" else user,
            permission_scopes if scoped else 0,
            document_tags,
        ),
        model=model,
    )
