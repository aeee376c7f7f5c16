"""Floors and epoch at start, and again whenever the floors are lost."""

from __future__ import annotations

from fleetward_api.floors import Floors
from fleetward_operator.edges.fleet import Fleet
from fleetward_operator.edges.release_keys import Epoch, SecretStore


async def settle_floors(
    fleet: Fleet, secrets: SecretStore, *, fresh_epoch: bool
) -> tuple[Epoch, bool]:
    """Have floors in the API server; the epoch in force, and whether it was rotated for that.

    Floors that are gone could have been any number, so nothing made under the old epoch may be
    reached again: the epoch is rotated first, then floors begin above all that anyone still tells.

    Args:
        fleet: the fleet.
        secrets: where the epoch's Secret is kept.
        fresh_epoch: the epoch was made just now, so that no cache can exist: a first start.
    """
    if await fleet.floors.read() is not None:
        return fleet.epoch, False
    epoch = fleet.epoch
    if not fresh_epoch:
        epoch = await secrets.rotate_epoch(epoch)
    told = fleet.floors_told()
    first = Floors() if fresh_epoch else told.model_copy(update={"version": told.version + 1})
    await fleet.floors.start_over(first)
    return epoch, not fresh_epoch
