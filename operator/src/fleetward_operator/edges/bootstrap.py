"""Floors and epoch at start, and again whenever they are lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleetward_api.bundle import PolicyBundle
from fleetward_api.floors import Floors, merge_floors
from fleetward_operator.edges.floors_store import FloorsStore
from fleetward_operator.edges.release_keys import Epoch, SecretStore
from fleetward_operator.edges.store import Store
from fleetward_operator.manifests.bundle import BUNDLE_KEY


@dataclass(frozen=True, slots=True)
class Told:
    """The largest floors and epoch that services' ConfigMaps and purges still tell."""

    floors: Floors
    epoch: int


def still_told(store: Store) -> Told:
    """What is left to go by when our own records are gone."""
    floors, epoch = Floors(), 0
    for key in store.keys("ConfigMap"):
        item = store.get("ConfigMap", key) or {}
        text = (item.get("data") or {}).get(BUNDLE_KEY)
        bundle = _bundle_in(text) if text else None
        if bundle is not None:
            floors, epoch = merge_floors(floors, bundle.floors), max(epoch, bundle.epoch)
    for key in store.keys("CachePurge"):
        floors = merge_floors(floors, _raised_by(store.get("CachePurge", key) or {}))
    return Told(floors, epoch)


async def begin(floors: FloorsStore, secrets: SecretStore, store: Store) -> Epoch:
    """Have floors and an epoch; the epoch in force.

    Without an epoch nothing can have been cached, so floors may begin first. A start that ends
    between the two leaves floors without an epoch, which cannot pass for floors that were lost.
    """
    epoch = await secrets.find_epoch()
    epoch = await settle_floors(floors, secrets, store, epoch) or epoch
    # An epoch's number never comes back with another secret, even when its Secret was lost.
    return epoch or await secrets.make_epoch(above=still_told(store).epoch)


async def settle_floors(
    floors: FloorsStore, secrets: SecretStore, store: Store, epoch: Epoch | None
) -> Epoch | None:
    """Have floors in the API server; the epoch that took the place of `epoch` for that, if any.

    Floors that are gone could have been any number, so nothing made under the old epoch may be
    reached again: the epoch is rotated first, then floors begin above all that anyone still tells.
    """
    if await floors.read() is not None:
        return None
    rotated = None if epoch is None else await _next_epoch(secrets, store, epoch)
    told = still_told(store).floors
    known = told != Floors()
    first = told.model_copy(update={"version": told.version + 1}) if known else Floors()
    await floors.start_over(first)
    return rotated


async def _next_epoch(secrets: SecretStore, store: Store, epoch: Epoch) -> Epoch:
    """The epoch after `epoch`, whatever became of its Secret since that was read."""
    kept = await secrets.find_epoch()
    if kept is not None:
        return await secrets.rotate_epoch(kept)
    return await secrets.make_epoch(above=max(epoch.number, still_told(store).epoch))


def _raised_by(purge: Mapping[str, Any]) -> Floors:
    """The floor that a purge says it raised; bundles may be some seconds behind it."""
    tenant = (purge.get("spec") or {}).get("tenant")
    floor = (purge.get("status") or {}).get("floor")
    if not isinstance(tenant, str) or not tenant or not isinstance(floor, int) or floor < 1:
        return Floors()
    return Floors(tenants={tenant: floor})


def _bundle_in(text: str) -> PolicyBundle | None:
    try:
        return PolicyBundle.model_validate_json(text)
    except ValueError:
        return None
