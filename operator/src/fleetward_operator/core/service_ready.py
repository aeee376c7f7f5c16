"""The overall state of a service: Ready, Progressing, Degraded, Reconciling, Stalled.

Reasons and their meanings are those of `fleetward_api.condition_types`. An author's fault or a
pod's trouble stalls the service: nothing moves before somebody acts, and its sentence says how.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetward_operator.core.desired import wanted_replicas
from fleetward_operator.core.gate import Refusal
from fleetward_operator.core.isolation import decide_isolation_verified
from fleetward_operator.core.observed import ServiceObserved
from fleetward_operator.core.service_facts import (
    Verdict,
    decide_model_loaded,
    decide_policy_enforced,
    fails,
    holds,
)
from fleetward_operator.core.trouble import decide_trouble

NOBODY = fails("NotStalled", "Nobody needs to act.")
SETTLED = fails("Settled", "Nothing is left to do.")
COMPLETE = fails("Complete", "The pods are those of the current spec.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overall:
    """The five summarising conditions; `ready.message` is also `status.message`."""

    ready: Verdict
    progressing: Verdict
    degraded: Verdict
    reconciling: Verdict
    stalled: Verdict


def decide_overall(seen: ServiceObserved, *, refusal: Refusal | None) -> Overall:
    """The overall state. `refusal` is what the administrator's rules say against the service."""
    fault = refusal or _author_fault(seen)
    trouble = fault or _pod_trouble(seen)
    if trouble is not None:
        return _stalled(seen, trouble)
    wanted, ready = wanted_replicas(seen.service.spec), len(seen.ready)
    if wanted == 0 and not seen.present:
        return Overall(
            ready=holds("Idle", "No engine is wanted; requests are answered 503."),
            progressing=COMPLETE,
            degraded=fails("Idle", "No engine is wanted."),
            reconciling=SETTLED,
            stalled=NOBODY,
        )
    if ready < wanted or not rollout_settled(seen):
        return _moving(seen)
    if decide_policy_enforced(seen).status != "True":
        return _pushing(seen)
    return Overall(
        ready=holds("Serving", _serving(seen)),
        progressing=COMPLETE,
        degraded=_degraded(seen),
        reconciling=SETTLED,
        stalled=NOBODY,
    )


def rollout_settled(seen: ServiceObserved) -> bool:
    """Whether the Deployment's controller has seen the wanted spec and carried it out."""
    live = seen.children.get(("Deployment", seen.service.metadata.name))
    if live is None:
        return False
    status = live.get("status") or {}
    wanted = wanted_replicas(seen.service.spec)
    updated = status.get("updatedReplicas", 0)
    return bool(
        live.get("spec", {}).get("replicas", 1) == wanted
        and status.get("observedGeneration", 0) >= live["metadata"].get("generation", 0)
        and updated == wanted
        and status.get("replicas", 0) == updated
    )


def _author_fault(seen: ServiceObserved) -> Refusal | None:
    if seen.taken:
        what = ", ".join(seen.taken)
        words = f"{what} exists and is not ours: rename the service or remove that object."
        return Refusal(reason="ChildForeign", message=words)
    if seen.refused:
        return Refusal(reason="ChildRefused", message=f"The API server: {'; '.join(seen.refused)}")
    if seen.name_conflict is not None:
        return seen.name_conflict
    missing = seen.choice.missing
    if missing is not None:
        # A policy that can't be read is as good as none; CachePolicyEnforced tells them apart.
        return Refusal(reason="PolicyNotFound", message=missing.message)
    return None


def _pod_trouble(seen: ServiceObserved) -> Refusal | None:
    model = decide_model_loaded(seen)
    if model.reason == "ModelFailed":
        return Refusal(reason=model.reason, message=model.message)
    trouble = decide_trouble(seen.present)
    if trouble is not None:
        return Refusal(reason=trouble.reason, message=trouble.message)
    words = _replica_failure(seen)
    return Refusal(reason="ChildRefused", message=f"No pod can be made: {words}") if words else None


def _replica_failure(seen: ServiceObserved) -> str:
    """Why the Deployment's controller can make no pod (a quota, a rule), in its words."""
    live = seen.children.get(("Deployment", seen.service.metadata.name)) or {}
    for one in (live.get("status") or {}).get("conditions") or []:
        if one.get("type") == "ReplicaFailure" and one.get("status") == "True":
            return str(one.get("message", ""))[:512] or "no reason given"
    return ""


def _stalled(seen: ServiceObserved, why: Refusal) -> Overall:
    return Overall(
        ready=fails(why.reason, why.message),
        progressing=fails(why.reason, why.message),
        degraded=_degraded(seen),
        reconciling=fails("Stalled", "Nothing can be done until somebody acts."),
        stalled=holds(why.reason, why.message),
    )


def _moving(seen: ServiceObserved) -> Overall:
    wanted, ready = wanted_replicas(seen.service.spec), len(seen.ready)
    words = f"{ready} of {wanted} engine(s) take requests."
    starting = holds("Starting", words)
    return Overall(
        ready=fails("Starting", words),
        progressing=holds(_movement(seen), words),
        degraded=_degraded(seen),
        reconciling=starting,
        stalled=NOBODY,
    )


def _movement(seen: ServiceObserved) -> str:
    wanted = wanted_replicas(seen.service.spec)
    live = seen.children.get(("Deployment", seen.service.metadata.name)) or {}
    status = live.get("status") or {}
    if not seen.ready:
        return "Starting"
    if status.get("updatedReplicas", 0) < min(wanted, status.get("replicas", 0)):
        return "RollingOut"
    return "Starting" if len(seen.present) == wanted else "Scaling"


def _pushing(seen: ServiceObserved) -> Overall:
    words = decide_policy_enforced(seen).message
    return Overall(
        ready=fails("PushingPolicy", words),
        progressing=COMPLETE,
        degraded=_degraded(seen),
        reconciling=holds("PushingPolicy", words),
        stalled=NOBODY,
    )


def _serving(seen: ServiceObserved) -> str:
    wanted, ready = wanted_replicas(seen.service.spec), len(seen.ready)
    words = f"{ready} of {wanted} engine(s) take requests."
    broken = decide_isolation_verified(seen).reason == "IsolationBroken"
    return f"{words} Isolation is broken: see IsolationVerified." if broken else words


def _degraded(seen: ServiceObserved) -> Verdict:
    wanted, ready = wanted_replicas(seen.service.spec), len(seen.ready)
    isolation = decide_isolation_verified(seen)
    if isolation.reason == "IsolationBroken":
        return holds(isolation.reason, isolation.message)
    if wanted == 0:
        return fails("Idle", "No engine is wanted.")
    if ready == 0:
        return fails("NotServing", "No engine takes requests: see Ready.")
    if ready < wanted:
        return holds("FewerReplicas", f"{ready} of {wanted} engine(s) take requests.")
    return fails("AsDesired", f"All {wanted} engine(s) take requests.")
