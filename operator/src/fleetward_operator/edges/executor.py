"""Carries out a plan's child actions. It alone touches children."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from fleetward_kube import KubeClient, KubeError
from fleetward_operator.core.children import (
    OUR_MANAGERS,
    ApplyChild,
    ChildAction,
    DeleteChild,
    plan_child,
)
from fleetward_operator.core.contest import (
    LONGEST_WAIT_S,
    Contest,
    add_revert,
    may_tell,
    wait_before_revert,
)
from fleetward_operator.core.drift import find_drifts, format_path
from fleetward_operator.core.events import (
    Announcement,
    children_applied,
    drift_reverted,
    field_contested,
    name_taken,
)
from fleetward_operator.core.field_manager import field_managers
from fleetward_operator.edges.kinds import object_path
from fleetward_operator.edges.own_writes import OwnWrites
from fleetward_operator.edges.writer import BUNDLE, CHILDREN, Writer
from fleetward_operator.manifests.manifest import Manifest
from fleetward_operator.manifests.names import bundle_name

REMEMBERED = 4096
BOUNCED_S = 0.2
REFUSALS = frozenset({400, 403, 422})
TOO_MANY = 429
CONFIRMED_S = 3.0
"""How long a look at a service counts for the passes that the API server put off: about as long as
one pass over its children may take."""
ATTEMPTS = 5
"""How often a child that others write at the same moment is decided upon anew in one pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The service whose children are written."""

    namespace: str
    name: str
    uid: str


@dataclass(slots=True)
class Outcome:
    """What a run did.

    `taken`: children whose names belong to others. `refused`: the API server's words on children
    that it would not have. `parent_gone`: the service is no longer there, nothing was made.
    `look_again_s`: when a revert is due that had to wait (None: none had). `put_off`: what the API
    server said of those that it does not want now, the longest wait of all (None: it took all).
    """

    announcements: list[Announcement] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    parent_gone: bool = False
    look_again_s: float | None = None
    put_off: KubeError | None = None


class Executor:
    """Applies, deletes, and looks twice before it makes anything."""

    def __init__(
        self,
        client: KubeClient,
        writer: Writer,
        own_writes: OwnWrites,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._contests: OrderedDict[tuple[str, str], Contest] = OrderedDict()
        self._looks: OrderedDict[str, float] = OrderedDict()
        self._client = client
        self._writer = writer
        self._own_writes = own_writes

    async def execute(self, actions: Iterable[ChildAction], *, owner: Owner) -> Outcome:
        """Carry out actions in order. One that is refused, or put off, does not stop the others.

        Raises:
            KubeError: the API server could not be asked; those before it are done.
            NotLeading: the lease is not ours.
        """
        outcome = Outcome()
        applied: list[str] = []
        put_off: list[KubeError] = []
        looked_at = self._looks.pop(owner.uid, -math.inf)
        confirmed = self._clock() - looked_at < CONFIRMED_S
        for action in actions:
            if _needs_the_service(action) and not confirmed:
                # The watch may lag behind a deletion: never make children of a ghost, nor take the
                # children of its successor for those of an earlier service.
                looked_at = self._clock()
                if not await self._is_there(owner):
                    outcome.parent_gone = True
                    return outcome
                confirmed = True
            try:
                if isinstance(action, DeleteChild):
                    await self._delete(action)
                elif await self._settle(action, owner, outcome):
                    applied.append(_label(action.manifest))
            except KubeError as error:
                if error.status == TOO_MANY:
                    # It is this call that it does not want now, and others may pass.
                    put_off.append(error)
                elif error.status in REFUSALS and isinstance(action, ApplyChild):
                    outcome.refused.append(f"{_label(action.manifest)}: {error.message}"[:512])
                else:
                    raise
        if put_off:
            outcome.put_off = max(put_off, key=lambda error: error.retry_after_s)
            self._looks[owner.uid] = looked_at
            while len(self._looks) > REMEMBERED:
                self._looks.popitem(last=False)
        if applied:
            outcome.announcements.append(children_applied(tuple(applied)))
        return outcome

    async def _settle(self, action: ApplyChild, owner: Owner, outcome: Outcome) -> bool:
        """Apply a child upon what it is now; whether that is worth telling."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._apply(action, owner, outcome)
            except KubeError as error:
                if error.conflict and attempt == ATTEMPTS and action.why == "Drifted":
                    await self._note_bounce(action, owner, outcome)
                    return False
                if not error.conflict or attempt == ATTEMPTS:
                    raise
                # Someone wrote it since we looked, as a controller does its status.
                metadata = action.manifest["metadata"]
                live = await self._get(
                    action.manifest["kind"], metadata["namespace"], metadata["name"]
                )
                again = plan_child(action.manifest, live, owner_uid=owner.uid)
                if again is None:
                    return False
                if live is None or not isinstance(again, ApplyChild):
                    # Another object altogether: the next pass looks at it whole.
                    raise
                if again.why == "Missing":
                    label = _label(action.manifest)
                    outcome.taken.append(label)
                    outcome.announcements.append(name_taken(label))
                    return False
                action = again
        raise AssertionError("unreachable")

    async def _apply(self, action: ApplyChild, owner: Owner, outcome: Outcome) -> bool:
        manifest, label = action.manifest, _label(action.manifest)
        key = f"{owner.namespace}/{manifest['metadata']['name']}"
        contest = self._contests.get((manifest["kind"], key), Contest())
        reverted: list[Announcement] = []
        if action.why == "Drifted":
            wait_s = wait_before_revert(contest, now=self._clock())
            if wait_s > 0:
                outcome.look_again_s = min(wait_s, outcome.look_again_s or wait_s)
                return False
            reverted = await self._describe_drift(action, label, contest)
        # The bundle is a concern of its own: it changes with policies, not with the service.
        manager = BUNDLE if manifest["metadata"]["name"] == bundle_name(owner.name) else CHILDREN
        written = await self._writer.apply(manifest, manager=manager, seen=action.seen)
        if action.why == "Drifted":
            self._note_revert((manifest["kind"], key), contest)
        outcome.announcements.extend(reverted)
        self._own_writes.remember(manifest["kind"], key, written)
        # Routine bundle generations are told by PolicyEnforced.
        return action.why != "Drifted" and manager == CHILDREN

    async def _delete(self, action: DeleteChild) -> None:
        try:
            await self._writer.delete(action.kind, action.namespace, action.name, seen=action.seen)
        except KubeError as error:
            if not error.not_found:
                raise

    async def _is_there(self, owner: Owner) -> bool:
        found = await self._get("InferenceService", owner.namespace, owner.name)
        if found is None:
            return False
        metadata = found["metadata"]
        return metadata["uid"] == owner.uid and "deletionTimestamp" not in metadata

    async def _note_bounce(self, action: ApplyChild, owner: Owner, outcome: Outcome) -> None:
        """A revert that others' writes never let through counts as one: it is as dear to send."""
        manifest, label = action.manifest, _label(action.manifest)
        child = (manifest["kind"], f"{owner.namespace}/{manifest['metadata']['name']}")
        contest = self._contests.get(child, Contest())
        if add_revert(contest, now=self._clock()).begins:
            outcome.announcements += await self._describe_drift(action, label, contest)
        self._note_revert(child, contest)
        wait_s = wait_before_revert(self._contests[child], now=self._clock())
        due_s = max(BOUNCED_S, wait_s)
        outcome.look_again_s = min(due_s, outcome.look_again_s or due_s)

    def _note_revert(self, child: tuple[str, str], contest: Contest) -> None:
        self._contests[child] = add_revert(contest, now=self._clock())
        self._contests.move_to_end(child)
        while len(self._contests) > REMEMBERED:
            self._contests.popitem(last=False)

    async def _describe_drift(
        self, action: ApplyChild, label: str, contest: Contest
    ) -> list[Announcement]:
        now = self._clock()
        begins, tells = add_revert(contest, now=now).begins, may_tell(contest, now=now)
        if not begins and not tells:
            return []
        manifest = action.manifest
        metadata = manifest["metadata"]
        live = await self._get(manifest["kind"], metadata["namespace"], metadata["name"]) or {}
        # Who changed it may have changed it back; then the first field that was seen is told.
        paths = list(find_drifts(manifest, live)) or [action.drift]
        manager = field_managers(paths, live, ours=OUR_MANAGERS)
        fields = [format_path(path) for path in paths]
        if begins:
            limit_s = LONGEST_WAIT_S
            return [field_contested(label, fields=fields, manager=manager, longest_s=limit_s)]
        return [drift_reverted(label, fields=fields, manager=manager)]

    async def _get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        try:
            return await self._client.request("GET", object_path(kind, namespace, name))
        except KubeError as error:
            if error.not_found:
                return None
            raise


def _needs_the_service(action: ChildAction) -> bool:
    """Whether an action is only right while the service is the one that it was planned for."""
    return isinstance(action, DeleteChild) or action.why == "Missing"


def _label(manifest: Manifest) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"
