"""From a bundle's scheduling to the discipline that the queue follows."""

from __future__ import annotations

from typing import Final

from fleetward_api.bundle import PolicyBundle
from fleetward_engine.scheduling.policy import PolicyName, SchedulingPolicy

_NAMES: Final[dict[str, PolicyName]] = {
    "FCFS": "fcfs",
    "Priority": "priority",
    "WeightedFair": "weighted-fair",
}


def scheduling_policy(bundle: PolicyBundle) -> SchedulingPolicy:
    """In which order requests are taken under a bundle."""
    aging_ms = bundle.scheduling.aging_after_ms
    return SchedulingPolicy(
        _NAMES[bundle.scheduling.policy], None if aging_ms is None else aging_ms / 1000
    )
