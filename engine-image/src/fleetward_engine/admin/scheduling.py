"""From a bundle's scheduling to the discipline that the queue follows, and whom it takes in."""

from __future__ import annotations

import math
from typing import Final

from fleetward_api.bundle import PolicyBundle
from fleetward_engine.admission.limits import AdmissionLimits
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


def admission_limits(bundle: PolicyBundle) -> AdmissionLimits:
    """Which requests are turned away under a bundle."""
    admission = bundle.scheduling.admission
    wait_ms = admission.max_predicted_wait_ms
    return AdmissionLimits(
        max_predicted_wait_s=math.inf if wait_ms is None else wait_ms / 1000,
        kv_headroom_percent=admission.kv_headroom_percent,
    )
