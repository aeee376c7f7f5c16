"""Conditions of our resources: the model, and how one is set.

The types and reasons, each with its meaning, are in :mod:`fleetward_api.condition_types`.
"""

from __future__ import annotations

import datetime as dt

from fleetward_api.condition_types import (
    CONDITION_TYPES,
    condition_types,
    initial_conditions,
    undocumented,
)
from fleetward_api.resources.condition import (
    Condition,
    Conditions,
    ConditionStatus,
    ConditionType,
    KindName,
    Reason,
)

__all__ = [
    "CONDITION_TYPES",
    "Condition",
    "ConditionStatus",
    "ConditionType",
    "Conditions",
    "KindName",
    "Reason",
    "condition_types",
    "find_condition",
    "format_time",
    "initial_conditions",
    "set_condition",
    "undocumented",
]


def format_time(moment: dt.datetime) -> str:
    """A moment as Kubernetes writes it: UTC, whole seconds."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def find_condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """The condition of this type, or None."""
    return next((entry for entry in conditions if entry.type == kind), None)


def set_condition(
    conditions: tuple[Condition, ...], new: Condition, now: dt.datetime
) -> tuple[Condition, ...]:
    """The conditions with one of them set; the order is kept, a new type goes last.

    `last_transition_time` moves only when the status changes, so that setting the same condition
    again changes nothing; the one in `new` is ignored.

    Args:
        conditions: the conditions so far, one per type.
        new: the condition as it is now.
        now: an aware time.
    """
    old = find_condition(conditions, new.type)
    moved = old is None or old.status != new.status or not old.last_transition_time
    since = format_time(now) if moved or old is None else old.last_transition_time
    entry = new.model_copy(update={"last_transition_time": since})
    if old is None:
        return (*conditions, entry)
    return tuple(entry if each.type == new.type else each for each in conditions)
