"""Which children to write or remove, and why. Nothing is written that is as we want it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fleetward_operator.core.drift import Path, find_drift
from fleetward_operator.core.field_manager import field_manager
from fleetward_operator.manifests.manifest import Manifest, stamped_hash
from fleetward_operator.manifests.names import (
    BUNDLE_MANAGER,
    CHILDREN_MANAGER,
    DESIRED_HASH_ANNOTATION,
    SERVICE_LABEL,
)

OUR_MANAGERS = frozenset({CHILDREN_MANAGER, BUNDLE_MANAGER})
STAMP_PATH: Path = ("metadata", "annotations", DESIRED_HASH_ANNOTATION)

ChildKey = tuple[str, str]
"""(kind, name) of a child in its service's namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyChild:
    """Write a child: it is missing, is wanted otherwise than before, or was changed by someone.

    `seen` is the child as it was when that was decided, None when there was none of ours.
    """

    manifest: Manifest
    why: Literal["Missing", "Changed", "Drifted"]
    drift: Path = ()
    seen: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteChild:
    """Remove a child that belongs to an earlier object of the same name."""

    kind: str
    namespace: str
    name: str
    seen: Mapping[str, Any]
    reason: str


ChildAction = ApplyChild | DeleteChild


def plan_children(
    wanted: Iterable[Manifest], live: Mapping[ChildKey, Mapping[str, Any]], *, owner_uid: str
) -> tuple[ChildAction, ...]:
    """One action for each wanted child that is not as we want it, in the order given."""
    actions: list[ChildAction] = []
    for manifest in wanted:
        found = live.get((manifest["kind"], manifest["metadata"]["name"]))
        action = plan_child(manifest, found, owner_uid=owner_uid)
        if action is not None:
            actions.append(action)
    return tuple(actions)


def _controller(item: Mapping[str, Any]) -> Mapping[str, Any]:
    references = item.get("metadata", {}).get("ownerReferences") or []
    return next((one for one in references if one.get("controller")), {})


def _is_or_was_ours(manifest: Manifest, live: Mapping[str, Any]) -> bool:
    """Whether it belongs to a service of this name; one without an owner, by its label."""
    owner = _controller(live)
    if owner:
        ours = manifest["metadata"]["ownerReferences"][0]
        return (owner.get("kind"), owner.get("name")) == (ours["kind"], ours["name"])
    labels = live["metadata"].get("labels") or {}
    return bool(labels.get(SERVICE_LABEL) == manifest["metadata"]["labels"][SERVICE_LABEL])


def plan_child(
    manifest: Manifest, live: Mapping[str, Any] | None, *, owner_uid: str
) -> ChildAction | None:
    """What to do about one child as it is; None when nothing."""
    if live is None:
        return ApplyChild(manifest=manifest, why="Missing")
    if "deletionTimestamp" in live["metadata"]:
        # It comes back as missing when it is gone.
        return None
    owner = _controller(live)
    if owner_uid and not _is_or_was_ours(manifest, live):
        # It bounces, and the executor tells that the name is taken.
        return ApplyChild(manifest=manifest, why="Missing")
    if owner and owner.get("uid") != owner_uid:
        return DeleteChild(
            kind=manifest["kind"],
            namespace=manifest["metadata"]["namespace"],
            name=manifest["metadata"]["name"],
            seen=live,
            reason="it belongs to an earlier service of this name",
        )
    stamped = stamped_hash(dict(live)) == stamped_hash(manifest)
    # With another's hash in it, a roll-back or restore wrote it, whatever else it changed.
    if not stamped and not field_manager(STAMP_PATH, live, ours=OUR_MANAGERS):
        return ApplyChild(manifest=manifest, why="Changed", seen=live)
    drift = find_drift(manifest, live)
    if drift:
        return ApplyChild(manifest=manifest, why="Drifted", drift=drift, seen=live)
    return None
