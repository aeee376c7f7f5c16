"""Every condition of our resources, with every reason and what it means.

``docs/conditions.md`` is printed from the definitions that are gathered here. A reason that is not
among them must not be set; :func:`undocumented` finds such ones.
"""

from __future__ import annotations

from typing import Final

from fleetward_api.resources.condition import Condition, ConditionType, KindName
from fleetward_api.resources.other_conditions import (
    POLICY_CONDITIONS,
    PURGE_CONDITIONS,
    TENANT_CONDITIONS,
)
from fleetward_api.resources.service_conditions import NOT_OBSERVED, SERVICE_CONDITIONS

CONDITION_TYPES: Final = (
    *SERVICE_CONDITIONS,
    *POLICY_CONDITIONS,
    *TENANT_CONDITIONS,
    *PURGE_CONDITIONS,
)


def condition_types(kind: KindName) -> tuple[ConditionType, ...]:
    """The conditions of a kind, in the order in which they stand in its status."""
    return tuple(each for each in CONDITION_TYPES if each.kind == kind)


def initial_conditions(kind: KindName) -> tuple[Condition, ...]:
    """Every condition of a kind before anything is known, for the first write of a status."""
    return tuple(
        Condition(type=each.type, status="Unknown", reason=NOT_OBSERVED.name, message="")
        for each in condition_types(kind)
    )


def undocumented(kind: KindName, conditions: tuple[Condition, ...]) -> tuple[str, ...]:
    """Conditions whose type, or whose reason beside their status, is not described here.

    Returns:
        ``Type=Status/Reason`` of each; nothing when all are documented.
    """
    allowed = {
        (each.type, status, reason.name)
        for each in condition_types(kind)
        for status in ("True", "False", "Unknown")
        for reason in each.reasons(status)
    }
    return tuple(
        f"{each.type}={each.status}/{each.reason}"
        for each in conditions
        if (each.type, each.status, each.reason) not in allowed
    )
