"""How many replicas run, and how they are replaced."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from fleetward_api.resources.base import ApiModel
from fleetward_api.resources.rules import Rule, absent, only
from fleetward_api.resources.scalars import (
    WHOLE,
    Check,
    Duration,
    IntOrString,
    Percent,
    ReplicaCount,
)

_PERCENT_TEXT = r"^[0-9]{1,3}%$"
_MOST_PODS = 100


def pods_of(value: int | str) -> int:
    """The number in a count or percentage (``25%`` is 25)."""
    return int(str(value).removesuffix("%"))


PodAmount: TypeAlias = Annotated[
    int | Annotated[str, Field(pattern=_PERCENT_TEXT, max_length=4)],
    Check(
        Rule(
            cel=(
                "int(string(self).replace('%', '')) >= 0"
                f" && int(string(self).replace('%', '')) <= {_MOST_PODS}"
            ),
            message="write a number of pods from 0 to 100, or a percentage from 0% to 100%",
            holds=lambda value: 0 <= pods_of(value) <= _MOST_PODS,
        )
    ),
    IntOrString(pattern=_PERCENT_TEXT, max_length=4),
]


class ScalingTargets(ApiModel):
    """What autoscaling aims at."""

    queue_wait: Duration | None = None
    """Longest wait of a request before its first step."""
    kv_utilization_percent: Percent | None = None
    """Highest use of the KV pool, in percent."""


class ScalingRules(ApiModel):
    """Limits of scaling in one direction."""

    stabilization_window: Duration | None = None
    """How long a need must last before it is followed."""
    max_pods: Annotated[int, Field(ge=1, le=1000), WHOLE] | None = None
    """Most pods added or removed within one period."""
    period: Duration | None = None
    """The period that `maxPods` speaks of."""


class ScalingBehavior(ApiModel):
    """Limits of scaling, per direction."""

    scale_up: ScalingRules | None = None
    """Limits of adding pods."""
    scale_down: ScalingRules | None = None
    """Limits of removing pods."""


class ScalingMetrics(ApiModel):
    """Where autoscaling reads its numbers."""

    source: Literal["Engine", "Prometheus"] = "Engine"
    """The engines themselves, or a Prometheus server. Engine today."""

    rules = (only("source", "Engine", "spec.scaling.metrics.source", "set it to Engine"),)


class ScalingSpec(ApiModel):
    """How many replicas run. Autoscaling comes later: today the number is `minReplicas`."""

    mode: Literal["Fleetward", "External"] = "Fleetward"
    """Fleetward: the operator sets the replicas from this section. External: whoever writes the
    scale subresource does (kubectl scale, an HPA), and the operator never writes them."""
    min_replicas: ReplicaCount = 1
    """Replicas that always run; 0 leaves the service idle."""
    max_replicas: ReplicaCount | None = None
    """Most replicas; equals `minReplicas` today."""
    targets: ScalingTargets | None = None
    """What autoscaling aims at. Not available yet."""
    behavior: ScalingBehavior | None = None
    """Limits of scaling, per direction. Not available yet."""
    idle_after: Duration | None = None
    """Time without a request after which the service goes to 0 replicas. Not available yet."""
    metrics: ScalingMetrics = ScalingMetrics()
    """Where autoscaling reads its numbers."""

    rules = (
        absent("targets", "spec.scaling.targets", "set spec.scaling.minReplicas"),
        absent("behavior", "spec.scaling.behavior", "set spec.scaling.minReplicas"),
        absent("idle_after", "spec.scaling.idleAfter", "set spec.scaling.minReplicas to 0 instead"),
        Rule(
            cel="!has(self.maxReplicas) || self.maxReplicas >= self.minReplicas",
            message="spec.scaling.maxReplicas must not be below spec.scaling.minReplicas",
            holds=lambda self: self.max_replicas is None or self.max_replicas >= self.min_replicas,
            field="max_replicas",
        ),
        Rule(
            cel="!has(self.maxReplicas) || self.maxReplicas <= self.minReplicas",
            message=(
                "spec.scaling.maxReplicas above spec.scaling.minReplicas is not available yet: "
                "make them equal, or scale from outside with spec.scaling.mode External"
            ),
            holds=lambda self: self.max_replicas is None or self.max_replicas <= self.min_replicas,
            field="max_replicas",
        ),
    )


class RolloutSpec(ApiModel):
    """How pods are replaced when the service changes."""

    max_surge: PodAmount = 1
    """Pods above the wanted number during a rollout: a number or a percentage."""
    max_unavailable: PodAmount = 0
    """Pods below the wanted number during a rollout: a number or a percentage."""
    auto_rollback: bool = False
    """Whether a rollout that does not get ready is undone. False today."""

    rules = (
        Rule(
            cel="!self.autoRollback",
            message=(
                "spec.rollout.autoRollback true is not available yet: "
                "set it to false and roll back by applying the earlier manifest"
            ),
            holds=lambda self: not self.auto_rollback,
            field="auto_rollback",
        ),
        Rule(
            cel=(
                "int(string(self.maxSurge).replace('%', '')) > 0"
                " || int(string(self.maxUnavailable).replace('%', '')) > 0"
            ),
            message=(
                "spec.rollout.maxSurge and spec.rollout.maxUnavailable are both 0, so that no pod "
                "could ever be replaced: raise one of them"
            ),
            holds=lambda self: pods_of(self.max_surge) > 0 or pods_of(self.max_unavailable) > 0,
            field="max_unavailable",
        ),
    )
