"""From verdicts to the conditions of a status."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from fleetward_api.conditions import set_condition
from fleetward_api.resources.condition import Condition, Conditions
from fleetward_operator.core.service_facts import Verdict


def conditions_from(
    before: Conditions, verdicts: Mapping[str, Verdict], *, generation: int, now: dt.datetime
) -> Conditions:
    """Conditions in the order of `verdicts`; a transition time moves only when a status flips."""
    conditions = before
    for kind, verdict in verdicts.items():
        entry = Condition(
            type=kind,
            status=verdict.status,
            reason=verdict.reason,
            message=verdict.message[:4096],
            observed_generation=generation,
        )
        conditions = set_condition(conditions, entry, now)
    order = {kind: place for place, kind in enumerate(verdicts)}
    return tuple(
        sorted((one for one in conditions if one.type in order), key=lambda one: order[one.type])
    )
