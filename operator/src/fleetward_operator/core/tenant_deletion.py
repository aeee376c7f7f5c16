"""A Tenant on its way out: its cache is purged first, within a bound, unless the glass is broken.

The purge's name is a digest of the Tenant's uid and the moment of its deletion. So every leader
finds the same purge, and none that was made before the deletion can stand in for it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleetward_api.resources.metadata import ObjectMeta
from fleetward_operator.core.events import (
    Announcement,
    tenant_purge_incomplete,
    tenant_purged,
    tenant_released,
)

FINALIZER = "fleetward.io/tenant-purge"
BREAK_GLASS = "fleetward.io/break-glass"
GRACE_S = 60.0
"""After its purge's deadline a Tenant waits this long for the purge to have ended."""
LOOK_AGAIN_S = 5.0

_STEM_CHARS = 40
_MARK_CHARS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPurge:
    """Make the purge of this name."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitPurge:
    """The purge is under way; `message` is for the Tenant's status."""

    message: str
    look_again_s: float = LOOK_AGAIN_S


@dataclass(frozen=True, slots=True, kw_only=True)
class LetGo:
    """Take the finalizer off, and say why it may go."""

    announcement: Announcement


Deletion = StartPurge | AwaitPurge | LetGo


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeSeen:
    """What the Tenant's purge says: its tenant, when it was made, its phase and its words."""

    name: str
    tenant: str
    created: str
    phase: str
    digest: str
    message: str


def purge_name(metadata: ObjectMeta) -> str:
    """Name of the purge that this deletion makes; at most 63 characters."""
    once = f"{metadata.uid}/{metadata.deletion_timestamp}"
    mark = hashlib.sha256(once.encode()).hexdigest()[:_MARK_CHARS]
    return f"{metadata.name[:_STEM_CHARS]}-deleted-{mark}"


def observe_purge(item: Mapping[str, Any]) -> PurgeSeen:
    """What a CachePurge says of itself; also one that this release's rules refuse."""
    metadata, status = item["metadata"], item.get("status") or {}
    return PurgeSeen(
        name=str(metadata["name"]),
        tenant=str((item.get("spec") or {}).get("tenant", "")),
        created=str(metadata.get("creationTimestamp", "")),
        phase=str(status.get("phase") or "Pending"),
        digest=str(status.get("evidenceDigest") or ""),
        message=str(status.get("message") or ""),
    )


def plan_deletion(
    metadata: ObjectMeta, purge: PurgeSeen | None, *, deadline_s: float, now: dt.datetime
) -> Deletion | None:
    """What to do about a Tenant that is being deleted; None: it is not ours to hold.

    Args:
        metadata: of the Tenant.
        purge: the one named `purge_name(metadata)`, where it is there.
        deadline_s: seconds that its purge is given.
        now: the wall clock; it decides only where the purge itself does not end.
    """
    if not metadata.deleting or FINALIZER not in metadata.finalizers:
        return None
    reason = metadata.annotations.get(BREAK_GLASS)
    if reason is not None:
        words = reason.strip()[:256] or "no reason given"
        return LetGo(announcement=tenant_released(f"annotation {BREAK_GLASS}: {words}"))
    if purge is None:
        return StartPurge(name=purge_name(metadata))
    if purge.tenant == metadata.name:
        if purge.phase == "Completed":
            return LetGo(announcement=tenant_purged(purge.name, purge.digest))
        if purge.phase == "Incomplete":
            return LetGo(announcement=tenant_purge_incomplete(purge.name, purge.message))
    waited = (now - dt.datetime.fromisoformat(purge.created)).total_seconds()
    return await_or_release(
        f"CachePurge {purge.name} has not ended", waited_s=waited, deadline_s=deadline_s
    )


def await_or_release(why: str, *, waited_s: float, deadline_s: float) -> AwaitPurge | LetGo:
    """Wait while the bound lasts. Past it the Tenant goes, and the Event says what is not shown."""
    left = deadline_s + GRACE_S - waited_s
    # Written so that a time that is no number lets go.
    if not left > 0:
        return LetGo(announcement=tenant_released(f"{why} after {int(deadline_s + GRACE_S)} s"))
    return AwaitPurge(
        message=f"The tenant is being deleted, and its cache purged first: {why}.",
        look_again_s=min(LOOK_AGAIN_S, left + 0.1),
    )
