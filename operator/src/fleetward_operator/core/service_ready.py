"""The overall state of a service: Ready, Progressing, Degraded, Reconciling, Stalled.

- `Ready` (True): all wanted engines are ready under the wanted policy.
- `Idle` (True): no engine is wanted; kstatus sees it as current.
- `Degraded` (True): some engines are ready, fewer than wanted, after all had been.
- `InvalidSpec`, `NamespaceNotAllowed`, `ImageNotAllowed`, `NameTaken`, `ServedNameTaken`,
  `CachePolicyNotFound`, `CachePolicyInvalid` (False, Stalled): a person must change something.
- `ImagePullFailed`, `EngineNotStarting`, `EngineCrashing` (False, Stalled): the kubelet's words.
- `Unschedulable` (False, Stalled): the scheduler's words.
- `ModelFault` (False, Stalled): the engine's own words.
- `PolicyNotEnforced` (False): engines are ready, the policy is not acked by all yet.
- `Progressing` (False): engines are starting.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetward_operator.core.desired import wanted_replicas
from fleetward_operator.core.gate import Refusal
from fleetward_operator.core.observed import ServiceObserved
from fleetward_operator.core.service_facts import (
    Verdict,
    decide_model_loaded,
    decide_policy_enforced,
    fails,
    holds,
)
from fleetward_operator.core.trouble import decide_trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class Overall:
    """The five summarising conditions, and the sentence for `status.message`."""

    ready: Verdict
    progressing: Verdict
    degraded: Verdict
    reconciling: Verdict
    stalled: Verdict


def decide_overall(seen: ServiceObserved) -> Overall:
    """The overall state of a service that is not refused."""
    blocked = _blocked(seen)
    if blocked is not None:
        return refused(blocked)
    wanted = wanted_replicas(seen.service.spec)
    ready = len(seen.ready)
    settled = rollout_settled(seen)
    trouble = decide_trouble(seen.present)
    if wanted == 0 and not seen.present:
        return _steady(holds("Idle", "No engine is wanted; requests are answered 503."))
    if ready == 0 and trouble is not None:
        return refused(Refusal(reason=trouble.reason, message=trouble.message))
    enforced = decide_policy_enforced(seen)
    if settled and ready >= wanted and enforced.status == "True":
        return _steady(holds("Ready", f"{ready} of {wanted} engine(s) are ready."))
    return _moving(seen, trouble_words=trouble.message if trouble else "")


def refused(refusal: Refusal) -> Overall:
    """Nothing moves before a person changes something."""
    verdict = fails(refusal.reason, refusal.message)
    return Overall(
        ready=verdict,
        progressing=verdict,
        degraded=holds(refusal.reason, refusal.message),
        reconciling=fails(refusal.reason, "Nothing is under way."),
        stalled=holds(refusal.reason, refusal.message),
    )


def rollout_settled(seen: ServiceObserved) -> bool:
    """Whether the Deployment's controller has seen the wanted spec and carried it out."""
    live = seen.children.get(("Deployment", seen.service.metadata.name))
    if live is None:
        return False
    status = live.get("status") or {}
    generation = live["metadata"].get("generation", 0)
    wanted = wanted_replicas(seen.service.spec)
    return bool(
        live.get("spec", {}).get("replicas", 1) == wanted
        and status.get("observedGeneration", 0) >= generation
        and status.get("updatedReplicas", 0) >= wanted
        and status.get("replicas", 0) == status.get("updatedReplicas", 0)
    )


def _blocked(seen: ServiceObserved) -> Refusal | None:
    if seen.taken:
        return Refusal(
            reason="NameTaken",
            message=(
                f"{', '.join(seen.taken)} exists and is not ours: "
                "rename the service or remove that object."
            ),
        )
    if seen.name_conflict is not None:
        return seen.name_conflict
    if seen.choice.missing is not None:
        return seen.choice.missing
    model = decide_model_loaded(seen)
    if model.reason == "ModelFault" and not seen.ready:
        return Refusal(reason=model.reason, message=model.message)
    return None


def _steady(ready: Verdict) -> Overall:
    calm = fails(ready.reason, "Nothing is under way.")
    return Overall(
        ready=ready,
        progressing=calm,
        degraded=fails(ready.reason, "Nothing is missing."),
        reconciling=calm,
        stalled=fails(ready.reason, "Nothing stands in the way."),
    )


def _moving(seen: ServiceObserved, *, trouble_words: str) -> Overall:
    wanted, ready = wanted_replicas(seen.service.spec), len(seen.ready)
    count = f"{ready} of {wanted} engine(s) are ready"
    words = f"{count}. {trouble_words}" if trouble_words else f"{count}."
    if ready and ready >= wanted and not _enforced(seen):
        verdict = fails("PolicyNotEnforced", decide_policy_enforced(seen).message)
    elif ready and _was_ready(seen):
        verdict = holds("Degraded", words)
    else:
        verdict = fails("Progressing", words)
    return Overall(
        ready=verdict,
        progressing=holds("Progressing", words),
        degraded=holds("Degraded", words) if ready < wanted else fails("Progressing", words),
        reconciling=holds("Progressing", words),
        stalled=fails("Progressing", "Nothing stands in the way."),
    )


def _enforced(seen: ServiceObserved) -> bool:
    return decide_policy_enforced(seen).status == "True"


def _was_ready(seen: ServiceObserved) -> bool:
    """Whether this generation was Ready before: a lost engine then degrades, a new one is awaited."""
    before = next((one for one in seen.status.conditions if one.type == "Ready"), None)
    current = seen.status.observed_generation == seen.service.metadata.generation
    return before is not None and before.status == "True" and current
