"""Rotates the cache's epoch when the policies that services follow say so."""

from __future__ import annotations

from dataclasses import replace

from fleetward_api.resources import InferenceService
from fleetward_kube import KubeError
from fleetward_operator.core.events import keys_unreadable, salt_rotated
from fleetward_operator.core.salt_rotation import (
    FirstSight,
    Rotation,
    decide_rotation,
    shortest_rotation,
)
from fleetward_operator.edges.bootstrap import still_told
from fleetward_operator.edges.release_keys import Epoch
from fleetward_operator.errors import KeysUnreadable
from fleetward_operator.handlers.context import Operator


async def rotate_when_due(op: Operator) -> None:
    """Make the next epoch, if the one in force is too old; every service then has a new bundle."""
    rotation = wanted_rotation(op)
    if rotation is None:
        return
    due = decide_rotation(_sight(op), every_s=rotation.every_s, monotonic=op.clock.monotonic())
    if due == "nothing":
        return
    known = op.fleet.epoch
    item = op.store.get("CachePolicy", rotation.policy)
    try:
        op.fleet.epoch = await (_rotated(op) if due == "rotate" else _dated(op))
    except KeysUnreadable as error:
        # The epoch in force is still known; only what lies in its Secret is spoilt.
        if item is not None:
            await op.events.announce(item, keys_unreadable(error.message))
        return
    op.epoch_seen = None
    if op.fleet.epoch.number == known.number:
        return
    for kind, worker in (("InferenceService", "service"), ("CachePolicy", "policy")):
        for key in op.store.keys(kind):
            op.enqueue(worker, key)
    if item is not None:
        announcement = salt_rotated(op.fleet.epoch.number, every=rotation.every)
        await op.events.announce(item, announcement)


def wanted_rotation(op: Operator) -> Rotation | None:
    """How often services of the release want it, by the policies that they follow.

    One in a namespace that may hold none is no service of the release, whoever made it.
    """
    keys = op.store.keys("InferenceService")
    services = [(key.partition("/")[0], op.catalog.service(key)) for key in keys]
    allowed = op.settings.engine.namespace_allowed
    return shortest_rotation(
        (namespace, op.fleet.choice(service))
        for namespace, service in services
        if isinstance(service, InferenceService) and allowed(namespace)
    )


def _sight(op: Operator) -> FirstSight:
    """The epoch in force as it was first seen; the wall clock is looked at only then."""
    epoch = op.fleet.epoch
    if op.epoch_seen is None or op.epoch_seen.number != epoch.number:
        op.epoch_seen = FirstSight(
            number=epoch.number,
            age_s=(op.clock.now() - epoch.rotated_at).total_seconds(),
            at=op.clock.monotonic(),
        )
    return op.epoch_seen


async def _rotated(op: Operator) -> Epoch:
    """The next epoch: made now, or by a try of ours whose answer was lost, or by another leader."""
    known = op.fleet.epoch
    try:
        return await op.secrets.rotate_epoch(known)
    except KubeError as error:
        if not (error.conflict or error.not_found):
            raise
    kept = await op.secrets.find_epoch()
    if kept is None:
        told = still_told(op.store).epoch
        return await op.secrets.make_epoch(above=max(known.number, told))
    if kept.number > known.number:
        return kept
    # Touched by somebody, or put back from a copy: a number never comes with two secrets.
    return await op.secrets.rotate_epoch(replace(kept, number=known.number))


async def _dated(op: Operator) -> Epoch:
    """The epoch in force, to count from now on."""
    try:
        return await op.secrets.date_epoch(op.fleet.epoch)
    except KubeError as error:
        if not error.conflict:
            raise
    kept = await op.secrets.find_epoch()
    return kept if kept and kept.number >= op.fleet.epoch.number else op.fleet.epoch
