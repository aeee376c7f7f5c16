"""What a CachePurge asks for: its scope, its widening, or why it is refused."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fleetward_api.quantity import parse_duration
from fleetward_api.resources import CachePurge
from fleetward_api.scope import Scope
from fleetward_operator.core.gate import Refusal
from fleetward_operator.core.purge.state import PurgeState

LOST_RECORD = "the record of the purge's members was lost while it ran"


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgePlan:
    """The scope to purge, what it was widened to (or the empty string), and by when."""

    scope: Scope
    widened_to: str
    deadline: float


def plan_purge(purge: CachePurge) -> PurgePlan | Refusal:
    """Resolve a purge's spec.

    Floors are the fleet's: one service's cache of a tenant cannot be told from another's, so a
    purge of some services is widened to all of them, or refused where the spec says so.
    """
    spec = purge.spec
    widened = ""
    if spec.service_selector is not None:
        if spec.on_coarse_isolation == "Refuse":
            return Refusal(
                reason="Refused",
                message=(
                    "spec.serviceSelector is finer than floors can separate, and "
                    "spec.onCoarseIsolation is Refuse: remove the selector, or choose Widen."
                ),
            )
        widened = "all services"
    created = datetime.fromisoformat(purge.metadata.creation_timestamp).timestamp()
    return PurgePlan(
        scope=Scope(tenant=spec.tenant),
        widened_to=widened,
        deadline=created + parse_duration(spec.deadline) / 1000,
    )


def first_state(plan: PurgePlan, *, phase_before: str | None) -> PurgeState:
    """The state to start from where no record of the purge was found.

    A status that says the purge had begun means the record was lost: whoever vanished meanwhile
    is unknown, so the purge runs again and ends `Incomplete`.
    """
    begun = phase_before not in {None, "Pending"}
    return PurgeState(deadline=plan.deadline, caveats=(LOST_RECORD,) if begun else ())
