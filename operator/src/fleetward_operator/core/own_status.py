"""What of a status is ours: others may keep conditions of their own in it."""

from __future__ import annotations

from fleetward_api.condition_types import CONDITION_TYPES
from fleetward_api.resources.base import ApiModel
from fleetward_api.resources.condition import Condition


def own_status(kind: str, status: ApiModel) -> ApiModel:
    """A status of a kind with our own conditions only, in an order that no writer can change."""
    conditions: tuple[Condition, ...] | None = getattr(status, "conditions", None)
    if conditions is None:
        return status
    ours = {each.type for each in CONDITION_TYPES if each.kind == kind}
    kept = sorted((one for one in conditions if one.type in ours), key=lambda one: one.type)
    return status.model_copy(update={"conditions": tuple(kept)})
