"""From an authenticated caller and the policy in force to what a request may do with the cache.

The root of every cache key is derived here, from authenticated facts only. A request gets no root
(it neither reads nor writes any cache) when its retention class stores nothing, when its class is
unknown to the policy, or when its token is older than the tenant's floor. A class that stores
nothing does not read either: what such a request asks must not show in hit counts or timing.
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
from fleetward_engine.request import CacheContext
from fleetward_engine.server.identity import Caller


def cache_context(
    caller: Caller, policy: PolicyInForce, *, model: ModelFingerprint
) -> CacheContext:
    """What the caller's request may read and write."""
    retention = effective_retention(policy.bundle.retention, caller.retention_class)
    closed = is_behind(caller, policy) or retention.store == "None"
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
    )


def request_owner(caller: Caller, policy: PolicyInForce) -> Owner:
    """Every scope that isolation tells apart and the caller's bytes belong to."""
    scoped = policy.bundle.permission_scopes == "Include"
    return owner_of(
        caller.tenant,
        permission_scopes=_scopes(caller) if scoped else (),
        document_tags=caller.document_tags,
        floors=caller.floors,
        known=policy.floors,
    )


def is_behind(caller: Caller, policy: PolicyInForce) -> bool:
    """Whether the gateway authorised the request before a fence that this engine has seen."""
    floors = policy.floors.of_request(
        caller.tenant,
        user=caller.user,
        permission_scopes=_scopes(caller),
        document_tags=caller.document_tags,
    )
    return any(known < fenced for known, fenced in zip(caller.floors, floors, strict=True))


def root_inputs(caller: Caller, policy: PolicyInForce, model: ModelFingerprint) -> RootInputs:
    """The facts that must all be equal for reuse, under isolation by tenant."""
    tenant, _user, permission_scope, document_tags = caller.floors
    scoped = policy.bundle.permission_scopes == "Include"
    return RootInputs(
        tenant=caller.tenant,
        tenant_uid=caller.tenant_uid,
        isolation_subject="",
        permission_scope_digest=caller.permission_scope if scoped else "",
        document_tags_digest=document_tags_digest(caller.document_tags),
        floors=(tenant, 0, permission_scope if scoped else 0, document_tags),
        model=model,
    )


def _scopes(caller: Caller) -> tuple[str, ...]:
    return (caller.permission_scope,) if caller.permission_scope else ()
