"""What a CachePurge asks for: its scope, its widening, or why it is refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fleetward_api.bundle import PolicyBundle
from fleetward_api.quantity import parse_duration
from fleetward_api.resources import CachePurge
from fleetward_api.scope import (
    Scope,
    ScopeKind,
    document_tag_digest,
    permission_scope_digest,
    user_digest,
)
from fleetward_operator.core.gate import Refusal
from fleetward_operator.core.purge.state import PurgeState

LOST_RECORD = "the record of the purge's members was lost while it ran"
_SHOWN: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgePlan:
    """The scope to purge, what it was widened to in words (or the empty string), and by when.

    `widened` is set where the scope itself is coarser than what was asked for.
    """

    scope: Scope
    widened_to: str
    deadline: float
    widened: bool = False


def plan_purge(
    purge: CachePurge, *, digest_key: bytes, bundles: Iterable[PolicyBundle]
) -> PurgePlan | Refusal:
    """Resolve a purge's spec.

    Floors are the fleet's: one service's cache of a tenant cannot be told from another's, so a
    purge of some services is widened to all of them. A finer scope is widened to its tenant while
    the rules of any service do not tell it apart: there, what one user asked may lie in blocks that
    others made. Where the spec says so, either is refused instead.

    Args:
        purge: the object.
        digest_key: the release's, by which names inside a tenant are hashed.
        bundles: the rules of all services.
    """
    spec = purge.spec
    refuse = spec.on_coarse_isolation == "Refuse"
    asked = asked_scope(purge, digest_key)
    coarse = sorted(
        f"{bundle.service.namespace}/{bundle.service.name}"
        for bundle in bundles
        if not bundle.separates(asked.kind)
    )
    if spec.service_selector is not None and refuse:
        return Refusal(
            reason="Refused",
            message=(
                "spec.serviceSelector is finer than floors can separate, and "
                "spec.onCoarseIsolation is Refuse: remove the selector, or choose Widen."
            ),
        )
    if coarse and refuse:
        return _refused(asked.kind, coarse)
    words = [f"tenant {spec.tenant} ({_listed(coarse)} shares within it)"] if coarse else []
    words += ["all services"] if spec.service_selector is not None else []
    return PurgePlan(
        scope=Scope(tenant=spec.tenant) if coarse else asked,
        widened_to=", ".join(words),
        deadline=_deadline(purge),
        widened=bool(coarse),
    )


def resumed_plan(purge: CachePurge, *, scope: Scope) -> PurgePlan:
    """The plan of a purge that runs: whatever policies say by now, its cut was made for `scope`."""
    spec = purge.spec
    finer = spec.user or spec.permission_scope or spec.document_tag
    return PurgePlan(
        scope=scope,
        widened_to=purge.status.widened_to or "",
        deadline=_deadline(purge),
        widened=scope.kind == "tenant" and finer is not None,
    )


def asked_scope(purge: CachePurge, digest_key: bytes) -> Scope:
    """The scope that the spec names, its finer names as keyed digests."""
    spec = purge.spec
    scopes = [] if spec.permission_scope is None else [spec.permission_scope]
    return Scope(
        tenant=spec.tenant,
        user=user_digest(digest_key, spec.tenant, spec.user or ""),
        permission_scope=permission_scope_digest(digest_key, spec.tenant, scopes),
        document_tag=document_tag_digest(digest_key, spec.tenant, spec.document_tag or ""),
    )


def _refused(kind: ScopeKind, coarse: list[str]) -> Refusal:
    cure = {
        "user": "set isolation to User or Session",
        "permissionScope": "set permissionScopes to Include",
    }
    return Refusal(
        reason="Refused",
        message=(
            f"{_listed(coarse)} shares cache within the tenant, so a {kind} cannot be told apart "
            f"there, and spec.onCoarseIsolation is Refuse: {cure[kind]} in its CachePolicy, or "
            "choose Widen."
        ),
    )


def _listed(names: list[str]) -> str:
    """The first names; a status is short."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _deadline(purge: CachePurge) -> float:
    created = datetime.fromisoformat(purge.metadata.creation_timestamp).timestamp()
    return created + parse_duration(purge.spec.deadline) / 1000


def first_state(plan: PurgePlan, *, phase_before: str | None) -> PurgeState:
    """The state to start from where no record of the purge was found.

    A status that says the purge had begun means the record was lost: whoever vanished meanwhile
    is unknown, so the purge runs again and ends `Incomplete`.
    """
    begun = phase_before not in {None, "Pending"}
    return PurgeState(deadline=plan.deadline, caveats=(LOST_RECORD,) if begun else ())
