"""Which children to write or remove, and why. Nothing is written that is as we want it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fleetward_operator.core.drift import Path, find_drift
from fleetward_operator.manifests.manifest import Manifest, stamped_hash

ChildKey = tuple[str, str]
"""(kind, name) of a child in its service's namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyChild:
    """Write a child: it is missing, is wanted otherwise than before, or was changed by someone."""

    manifest: Manifest
    why: Literal["Missing", "Changed", "Drifted"]
    drift: Path = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteChild:
    """Remove a child that belongs to an earlier object of the same name."""

    kind: str
    namespace: str
    name: str
    uid: str
    reason: str


ChildAction = ApplyChild | DeleteChild


def plan_children(
    wanted: Iterable[Manifest], live: Mapping[ChildKey, Mapping[str, Any]], *, owner_uid: str
) -> tuple[ChildAction, ...]:
    """One action for each wanted child that is not as we want it, in the order given."""
    actions: list[ChildAction] = []
    for manifest in wanted:
        found = live.get((manifest["kind"], manifest["metadata"]["name"]))
        action = _plan_child(manifest, found, owner_uid=owner_uid)
        if action is not None:
            actions.append(action)
    return tuple(actions)


def controller_uid(item: Mapping[str, Any]) -> str:
    """Uid of an object's controller, or the empty string."""
    for reference in item.get("metadata", {}).get("ownerReferences") or []:
        if reference.get("controller"):
            return str(reference.get("uid", ""))
    return ""


def _plan_child(
    manifest: Manifest, live: Mapping[str, Any] | None, *, owner_uid: str
) -> ChildAction | None:
    if live is None:
        return ApplyChild(manifest=manifest, why="Missing")
    if "deletionTimestamp" in live["metadata"]:
        # It comes back as missing when it is gone.
        return None
    owner = controller_uid(live)
    if owner and owner != owner_uid:
        return DeleteChild(
            kind=manifest["kind"],
            namespace=manifest["metadata"]["namespace"],
            name=manifest["metadata"]["name"],
            uid=str(live["metadata"]["uid"]),
            reason="it belongs to an earlier service of this name",
        )
    if stamped_hash(dict(live)) != stamped_hash(manifest):
        return ApplyChild(manifest=manifest, why="Changed")
    drift = find_drift(manifest, live)
    if drift:
        return ApplyChild(manifest=manifest, why="Drifted", drift=drift)
    return None
