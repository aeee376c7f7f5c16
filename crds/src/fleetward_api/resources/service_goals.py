"""What a service promises and what it does under load. Mostly declared ahead of its time.

The fields stand in the schema so that a manifest which asks for them is refused with a sentence
instead of being pruned and silently served without them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fleetward_api.resources.base import ApiModel
from fleetward_api.resources.rules import Rule, absent
from fleetward_api.resources.scalars import WHOLE, Duration, LabelName, Percent


class LatencyGoal(ApiModel):
    """Upper bounds of a latency."""

    p95: Duration | None = None
    """95th percentile."""
    p99: Duration | None = None
    """99th percentile."""


class SloSpec(ApiModel):
    """Service level objectives."""

    ttft: LatencyGoal | None = None
    """Time to first token."""
    inter_token_latency: LatencyGoal | None = None
    """Time between two tokens of one answer."""
    max_queue_wait: Duration | None = None
    """Longest wait before the first step."""
    success_rate_percent: Percent | None = None
    """Requests answered without an error of ours, in percent."""


class AdmissionSpec(ApiModel):
    """When an engine turns a request away at once, with the time after which to try again."""

    max_predicted_wait: Duration | None = None
    """Longest predicted wait in an engine's queue; beyond it the answer is 503. Applies live."""
    kv_headroom_percent: Annotated[int, Field(ge=0, le=99), WHOLE] | None = None
    """Part of an engine's KV pool, in percent, that requests taken in must not come to need; one
    that would is answered 503. 0: all may be promised; absent: requests wait for room. Applies
    live."""

    rules = (
        Rule(
            cel="has(self.maxPredictedWait) || has(self.kvHeadroomPercent)",
            message=(
                "spec.scheduling.admission says nothing: give maxPredictedWait or "
                "kvHeadroomPercent, or remove it"
            ),
            holds=lambda self: (
                self.max_predicted_wait is not None or self.kv_headroom_percent is not None
            ),
        ),
    )


class SchedulingSpec(ApiModel):
    """In which order the engine takes requests."""

    policy: Literal["WeightedFair", "Priority", "FCFS"] = "FCFS"
    """FCFS: first come, first served. Priority: by `spec.priority` of the tenant. WeightedFair: by
    what each waiting tenant was served, prompt tokens and twice the output tokens, over its
    `spec.weight`; idle time earns nothing, and one that got too far ahead gives way. In each engine
    by itself. Applies live."""
    aging_after: Duration | None = None
    """Wait that counts as much as one level of priority, so that nobody waits for ever; policy
    Priority needs it. Applies live."""
    admission: AdmissionSpec | None = None
    """When a request is turned away at once."""

    rules = (
        Rule(
            cel="self.policy != 'Priority' || has(self.agingAfter)",
            message=(
                "spec.scheduling.policy Priority needs spec.scheduling.agingAfter, the wait that "
                "counts as one level: without it the lowest could wait for ever"
            ),
            holds=lambda self: self.policy != "Priority" or self.aging_after is not None,
            field="policy",
        ),
        Rule(
            cel="self.policy == 'Priority' || !has(self.agingAfter)",
            message=(
                "spec.scheduling.agingAfter counts only with spec.scheduling.policy Priority: "
                "remove it, the other policies let nobody wait for ever"
            ),
            holds=lambda self: self.policy == "Priority" or self.aging_after is None,
            field="aging_after",
        ),
    )


class FallbackSpec(ApiModel):
    """What a client gets when the service cannot take its request: one of the two."""

    service: LabelName | None = None
    """Another service in the namespace that answers instead."""
    message: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """A sentence for the error."""

    rules = (
        Rule(
            cel="has(self.service) != has(self.message)",
            message="spec.overload.fallback takes either service or message: give exactly one",
            holds=lambda self: (self.service is None) != (self.message is None),
        ),
    )


class OverloadSpec(ApiModel):
    """What happens when the service is full."""

    fallback: FallbackSpec | None = None
    """What a client gets instead of 503. Not available yet."""

    rules = (
        absent(
            "fallback",
            "spec.overload.fallback",
            "remove it, a full service answers 503 with Retry-After",
        ),
    )
