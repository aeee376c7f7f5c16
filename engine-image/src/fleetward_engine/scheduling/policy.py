"""Which discipline an engine follows, by name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fleetward_engine.errors import ConfigInvalid
from fleetward_engine.scheduling.discipline import Discipline
from fleetward_engine.scheduling.ranked import RankedLine, arrival_rank, priority_rank
from fleetward_engine.scheduling.weighted_fair import WeightedFair

PolicyName = Literal["fcfs", "priority", "weighted-fair"]


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """A discipline and its one number.

    `aging_after_s`: seconds of waiting that count as one level of priority.

    Raises:
        ConfigInvalid: a priority without ageing, under which the lowest could wait for ever, or
            ageing without priorities.
    """

    name: PolicyName = "fcfs"
    aging_after_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse what would starve somebody or mean nothing."""
        aging = self.aging_after_s
        if aging is not None and not (0 < aging < math.inf):
            raise ConfigInvalid(f"scheduling_aging_after must be above 0 s, not {aging}")
        if (aging is None) == (self.name == "priority"):
            raise ConfigInvalid(
                "scheduling_aging_after goes with scheduling_policy 'priority' and with no other: "
                "give both or neither"
            )


FCFS = SchedulingPolicy()
"""First come, first served."""


def build_discipline(policy: SchedulingPolicy) -> Discipline:
    """An empty line that follows the policy."""
    if policy.name == "weighted-fair":
        return WeightedFair()
    if policy.aging_after_s is not None:
        return RankedLine(priority_rank(policy.aging_after_s))
    return RankedLine(arrival_rank)
