"""The status of a service whose spec cannot be read at all."""

from __future__ import annotations

import datetime as dt

from fleetward_api.condition_types import initial_conditions
from fleetward_api.resources import InferenceServiceStatus
from fleetward_api.resources.condition import Conditions
from fleetward_operator.core.service_facts import Verdict, fails, holds, unknown
from fleetward_operator.core.verdicts import conditions_from


def invalid_status(
    message: str, *, before: Conditions, generation: int, now: dt.datetime
) -> InferenceServiceStatus:
    """Everything the spec would decide is `InvalidSpec`; engines that run are left alone."""
    invalid = fails("InvalidSpec", message)
    verdicts: dict[str, Verdict] = {
        one.type: invalid for one in initial_conditions("InferenceService")
    }
    verdicts |= {
        "Degraded": fails("NotServing", "See Ready."),
        "Reconciling": fails("Stalled", "Nothing can be done until somebody acts."),
        "Stalled": holds("InvalidSpec", message),
        "ModelLoaded": unknown("NotObserved", "The spec cannot be read."),
    }
    return InferenceServiceStatus(
        message=message[:4096],
        observed_generation=generation,
        conditions=conditions_from(before, verdicts, generation=generation, now=now),
    )
