"""Events we announce: one function for each, so that reason and words are the same everywhere.

| reason | type | on | when |
|---|---|---|---|
| ChildrenApplied | Normal | InferenceService | children were made or changed |
| DriftReverted | Warning | InferenceService | someone changed a field that we own |
| FieldContested | Warning | InferenceService | someone does so again and again |
| NameTaken | Warning | InferenceService | a child's name belongs to another object |
| ServiceReady | Normal | InferenceService | it became Ready |
| ServiceNotReady | Warning | InferenceService | it stopped being Ready, or is refused |
| PolicyEnforced | Normal | InferenceService | every engine acked a bundle generation |
| IsolationBroken | Warning | InferenceService | a probe reused cache across scopes |
| IsolationMended | Normal | InferenceService | after that, a probe of each engine did not |
| EpochRotated | Warning | ConfigMap of the floors | they were lost: all cache became unreachable |
| SaltRotated | Normal | CachePolicy | its `saltRotation` was due: all cache became unreachable |
| PurgeStarted, PurgeCompleted | Normal | CachePurge | |
| PurgeIncomplete, PurgeRefused | Warning | CachePurge | |
| EvidenceExpired | Normal | ConfigMap of the chain's head | evidence past its retention went |
| KeysMissing | Warning | Tenant | a Secret that it names is not there |
| TenantPurged | Normal | Tenant | it goes: its cache was purged |
| TenantPurgeIncomplete | Warning | Tenant | it goes, and not everything could be shown |
| TenantReleased | Warning | Tenant | it goes, and nothing shows that its cache is gone |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fleetward_operator.core.words import enumerated

MAX_FIELDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """One Event to be: its type, reason and sentence."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def children_applied(names: tuple[str, ...]) -> Announcement:
    """Children were made or changed."""
    message = f"Applied {', '.join(names)}."
    return Announcement(type="Normal", reason="ChildrenApplied", message=message)


def drift_reverted(child: str, *, fields: Sequence[str], manager: str) -> Announcement:
    """Fields that we own were changed by someone and put back.

    `manager` is empty for a field that was removed: nobody is on record for it.
    """
    changed = f"which {manager} had changed" if manager else "which somebody had removed"
    message = f"Put back {_listed(fields)} of {child}, {changed}."
    return Announcement(type="Warning", reason="DriftReverted", message=message)


def field_contested(
    child: str, *, fields: Sequence[str], manager: str, longest_s: float
) -> Announcement:
    """Someone keeps changing what we own: it is put back less often from now on."""
    message = (
        f"{manager or 'Somebody'} keeps changing {_listed(fields)} of {child}: from now on "
        f"it is put back at most every {longest_s:.0f} s. Change the InferenceService instead."
    )
    return Announcement(type="Warning", reason="FieldContested", message=message)


def _listed(fields: Sequence[str]) -> str:
    shown = list(fields[:MAX_FIELDS])
    if len(fields) > MAX_FIELDS:
        shown.append(f"{len(fields) - MAX_FIELDS} more field(s)")
    return enumerated(shown)


def name_taken(child: str) -> Announcement:
    """An object of another owner stands where a child should."""
    message = f"{child} exists and is not ours: rename the service or remove that object."
    return Announcement(type="Warning", reason="NameTaken", message=message)


def service_ready(message: str) -> Announcement:
    """The service became Ready."""
    return Announcement(type="Normal", reason="ServiceReady", message=message)


def service_not_ready(message: str) -> Announcement:
    """The service stopped being Ready, or can't become so."""
    return Announcement(type="Warning", reason="ServiceNotReady", message=message)


def policy_enforced(message: str) -> Announcement:
    """Every engine acked a bundle generation."""
    return Announcement(type="Normal", reason="PolicyEnforced", message=message)


def isolation_broken(message: str) -> Announcement:
    """A probe of an engine reused cache across scopes, or outlived its purge."""
    return Announcement(type="Warning", reason="IsolationBroken", message=message)


def isolation_mended(message: str) -> Announcement:
    """No engine does so any more."""
    return Announcement(type="Normal", reason="IsolationMended", message=message)


def epoch_rotated(number: int, *, why: str) -> Announcement:
    """All cache of the fleet became unreachable."""
    message = f"Rotated the cache epoch to {number}: {why}. No older cache can be reused."
    return Announcement(type="Warning", reason="EpochRotated", message=message)


def salt_rotated(number: int, *, every: str) -> Announcement:
    """The time of an epoch was over, as a policy says."""
    message = (
        f"Rotated the cache epoch to {number}: spec.saltRotation is {every}, the shortest of all "
        "policies that are followed. No older cache can be reused in any service."
    )
    return Announcement(type="Normal", reason="SaltRotated", message=message)


def purge_started(members: int) -> Announcement:
    """A purge made its cut."""
    message = f"Raised the floor; {members} member(s) must prove that the scope is gone."
    return Announcement(type="Normal", reason="PurgeStarted", message=message)


def purge_ended(*, completed: bool, digest: str, message: str) -> Announcement:
    """A purge reached its final phase; the Event carries the evidence's digest."""
    text = f"{message} Evidence {digest}."
    if completed:
        return Announcement(type="Normal", reason="PurgeCompleted", message=text)
    return Announcement(type="Warning", reason="PurgeIncomplete", message=text)


def purge_refused(message: str) -> Announcement:
    """A purge that cannot be run."""
    return Announcement(type="Warning", reason="PurgeRefused", message=message)


def evidence_expired(count: int, *, last: int, retain: str) -> Announcement:
    """Evidence was removed; `last` is the largest number of it in the chain."""
    message = (
        f"Removed the evidence of {count} purge(s), up to number {last}: it is older than "
        f"{retain}, the longest time that a CachePolicy keeps evidence."
    )
    return Announcement(type="Normal", reason="EvidenceExpired", message=message)


def keys_missing(message: str) -> Announcement:
    """A tenant's Secret is not there."""
    return Announcement(type="Warning", reason="KeysMissing", message=message)


def keys_unreadable(message: str) -> Announcement:
    """A Secret of the release's keys was spoilt while its keys were in use."""
    return Announcement(
        type="Warning", reason="KeysUnreadable", message=f"{message}; the keys in force stay."
    )


def tenant_purged(purge: str, digest: str) -> Announcement:
    """A deleted tenant's cache was purged."""
    message = f"Its cache was purged: CachePurge {purge}, evidence {digest}."
    return Announcement(type="Normal", reason="TenantPurged", message=message)


def tenant_purge_incomplete(purge: str, words: str) -> Announcement:
    """A deleted tenant's purge ended, and left something unproved."""
    message = f"It goes although CachePurge {purge} is Incomplete: {words}"
    return Announcement(type="Warning", reason="TenantPurgeIncomplete", message=message)


def tenant_released(why: str) -> Announcement:
    """A deleted tenant goes without a purge that ended."""
    message = f"It goes without evidence that its cache is gone: {why}."
    return Announcement(type="Warning", reason="TenantReleased", message=message)
