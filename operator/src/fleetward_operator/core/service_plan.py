"""`plan_service`: everything one pass should do about a service, as a value."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

from fleetward_api.canonical import canonical_bytes
from fleetward_api.resources import InferenceServiceStatus
from fleetward_api.resources.condition import Condition
from fleetward_operator.core.children import ChildAction, plan_children
from fleetward_operator.core.desired import desired_service
from fleetward_operator.core.events import (
    Announcement,
    isolation_broken,
    isolation_mended,
    policy_enforced,
    service_not_ready,
    service_ready,
)
from fleetward_operator.core.gate import decide_refusal
from fleetward_operator.core.observed import ServiceConfig, ServiceObserved
from fleetward_operator.core.pods import PodSeen
from fleetward_operator.core.service_ready import Overall, decide_overall
from fleetward_operator.core.service_status import build_status
from fleetward_operator.manifests.children import build_children

LOOK_AGAIN_S = 3.0
READ_EVERY_S = 30.0
"""How often engines in service are asked for their state; what it says seldom gets written."""
STALE_S = 25.0
"""A state that is older is read again by a pass that comes for any reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlan:
    """What to do, and why is in its parts.

    `actions` on children, in order; `pushes`: pods to send the bundle to; `reads`: pods whose own
    state is worth asking; `requeue_after`: seconds, None when only news can change anything.
    """

    actions: tuple[ChildAction, ...]
    pushes: tuple[PodSeen, ...]
    reads: tuple[PodSeen, ...]
    status: InferenceServiceStatus
    announcements: tuple[Announcement, ...]
    requeue_after: float | None


def plan_service(seen: ServiceObserved, *, config: ServiceConfig, now: dt.datetime) -> ServicePlan:
    """The plan for what was seen. Pure: the same input gives the same plan."""
    image = seen.service.spec.engine.image or config.rules.default_image
    refusal = decide_refusal(seen.service, config.rules, image=image)
    overall = decide_overall(seen, refusal=refusal)
    # What is refused is not made; what runs already is left to run.
    actions = () if refusal else _children(seen, config=config, image=image)
    status = build_status(seen, overall, config=config, now=now)
    pushes = tuple(pod for pod in seen.running if seen.bundle and not seen.has_acked(pod))
    reads = tuple(pod for pod in seen.running if _worth_reading(seen, pod))
    return ServicePlan(
        actions=actions,
        pushes=pushes,
        reads=reads,
        status=status,
        announcements=_announcements(seen, status, overall),
        requeue_after=_next_look(seen, pushes),
    )


def _next_look(seen: ServiceObserved, pushes: tuple[PodSeen, ...]) -> float | None:
    # A pod that runs and is not ready may be telling why, which nothing announces.
    if pushes or any(not pod.ready for pod in seen.running):
        return LOOK_AGAIN_S
    return READ_EVERY_S if seen.running else None


def _children(
    seen: ServiceObserved, *, config: ServiceConfig, image: str
) -> tuple[ChildAction, ...]:
    desired = desired_service(
        seen.service, image=image, environment=config.environment, keys=config.keys
    )
    text = None if seen.bundle is None else canonical_bytes(seen.bundle).decode()
    wanted = build_children(desired, bundle_json=text)
    return plan_children(wanted, seen.children, owner_uid=seen.service.metadata.uid)


def _worth_reading(seen: ServiceObserved, pod: PodSeen) -> bool:
    state = seen.states.get(pod.uid)
    return not pod.ready or state is None or state.model is None or pod.uid in seen.stale


def _announcements(
    seen: ServiceObserved, status: InferenceServiceStatus, overall: Overall
) -> tuple[Announcement, ...]:
    before = {one.type: one for one in seen.status.conditions}
    told: list[Announcement] = []
    was = before.get("Ready")
    ready = overall.ready
    if ready.status == "True" and (was is None or was.status != "True"):
        told.append(service_ready(ready.message))
    stalled = overall.stalled.status == "True"
    lost = was is not None and was.status == "True"
    if ready.status != "True" and (lost or stalled) and (was is None or was.reason != ready.reason):
        told.append(service_not_ready(ready.message))
    enforced = next(one for one in status.conditions if one.type == "CachePolicyEnforced")
    last = seen.status.cache_policy
    generation = status.cache_policy.bundle_generation if status.cache_policy else None
    fresh = last is None or last.bundle_generation != generation
    flipped = before.get("CachePolicyEnforced")
    if enforced.reason == "AllAcked" and (fresh or (flipped and flipped.reason != "AllAcked")):
        told.append(policy_enforced(enforced.message))
    told += _isolation_news(before.get("IsolationVerified"), status)
    return tuple(told)


def _isolation_news(
    was: Condition | None, status: InferenceServiceStatus
) -> Iterator[Announcement]:
    found = next(one for one in status.conditions if one.type == "IsolationVerified")
    was_broken = was is not None and was.reason == "IsolationBroken"
    if found.reason == "IsolationBroken" and not was_broken:
        yield isolation_broken(found.message)
    if found.status == "True" and was_broken:
        yield isolation_mended(found.message)
