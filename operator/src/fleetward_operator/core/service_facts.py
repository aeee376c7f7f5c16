"""The aspects of a service, each as one condition. `decide_<type>` gives (status, reason, words).

- ModelLoaded: True `ModelLoaded`, `Idle`; False `ModelFault` (an engine says why it can't load);
  Unknown `Loading`.
- RouteReady: True `Routed`; False `NobodyMayCall`, `ServedNameTaken`, `NoReadyEngine`.
- ScalingActive: True `FixedReplicas`, `Idle`; False `ExternallyScaled`.
- CachePolicyEnforced: True `Enforced`, `Idle`; False `CachePolicyNotFound`, `CachePolicyInvalid`,
  `AwaitingAcks`; Unknown `AwaitingEngines`.
- IsolationVerified: Unknown `NotProbed` (nothing in this release probes it).
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetward_api.resources.condition import ConditionStatus
from fleetward_operator.core.desired import wanted_replicas
from fleetward_operator.core.observed import ServiceObserved
from fleetward_operator.core.pods import PodSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One aspect: whether it holds, why in a word, why in a sentence."""

    status: ConditionStatus
    reason: str
    message: str


def holds(reason: str, message: str) -> Verdict:
    """It is so."""
    return Verdict(status="True", reason=reason, message=message)


def fails(reason: str, message: str) -> Verdict:
    """It is not so."""
    return Verdict(status="False", reason=reason, message=message)


def unknown(reason: str, message: str) -> Verdict:
    """Nobody can say yet."""
    return Verdict(status="Unknown", reason=reason, message=message)


def decide_model_loaded(seen: ServiceObserved) -> Verdict:
    """Whether an engine holds the model; an engine's own words when it cannot."""
    faults = [
        f"Engine {pod.name}: {seen.states[pod.uid].fault}"
        for pod in seen.running
        if pod.uid in seen.states and seen.states[pod.uid].fault
    ]
    if faults:
        return fails("ModelFault", " ".join(faults)[:1024])
    if seen.ready:
        source = seen.service.spec.model.source
        return holds("ModelLoaded", f"{len(seen.ready)} engine(s) hold {source}.")
    if wanted_replicas(seen.service.spec) == 0:
        return holds("Idle", "No engine is wanted; the next one loads the model.")
    return unknown("Loading", "No engine has loaded the model yet.")


def decide_route_ready(seen: ServiceObserved) -> Verdict:
    """Whether the gateway sends requests here."""
    if seen.name_conflict is not None:
        return fails(seen.name_conflict.reason, seen.name_conflict.message)
    if seen.service.spec.access.tenant_selector is None:
        return fails(
            "NobodyMayCall",
            "spec.access.tenantSelector is absent, so no tenant may call the service: set it.",
        )
    if not seen.ready:
        return fails("NoReadyEngine", "No engine is ready; requests are answered 503.")
    return holds("Routed", f"The gateway routes to {len(seen.ready)} engine(s).")


def decide_scaling_active(seen: ServiceObserved) -> Verdict:
    """Whether we decide the number of replicas."""
    spec = seen.service.spec
    count = wanted_replicas(spec)
    if spec.scaling.mode == "External":
        words = f"spec.scaling.mode is External: the scale subresource says {count}."
        return fails("ExternallyScaled", words)
    if count == 0:
        return holds("Idle", "spec.scaling.minReplicas is 0.")
    return holds("FixedReplicas", f"Replicas follow spec.scaling.minReplicas: {count}.")


def decide_policy_enforced(seen: ServiceObserved) -> Verdict:
    """Whether every engine that runs holds the wanted bundle in force."""
    missing = seen.choice.missing
    if missing is not None:
        kept = "" if seen.bundle is None else " Engines keep their last policy until then."
        return fails(missing.reason, missing.message + kept)
    if seen.bundle is None:
        return unknown("AwaitingEngines", "No bundle was made yet.")
    policy = f"CachePolicy {seen.choice.name}" if seen.choice.name else "The built-in policy"
    what = f"{policy} (bundle generation {seen.bundle.generation})"
    waiting = [pod for pod in seen.running if not seen.has_acked(pod)]
    if waiting:
        return fails("AwaitingAcks", f"{what} is not in force yet in {_names(seen, waiting)}.")
    if seen.running:
        return holds("Enforced", f"{what} is in force in all {len(seen.running)} engine(s).")
    if wanted_replicas(seen.service.spec) == 0:
        return holds("Idle", f"{what} is what the next engine starts with.")
    return unknown("AwaitingEngines", f"{what} waits for an engine to run.")


def decide_isolation_verified() -> Verdict:
    """Whether isolation was shown by probing; only ever by looking, never by configuration."""
    return unknown("NotProbed", "This release has no running probe of isolation.")


def _names(seen: ServiceObserved, pods: list[PodSeen]) -> str:
    told = []
    for pod in pods[:3]:
        fault = seen.push_faults.get(pod.uid, "")
        told.append(f"{pod.name} ({fault})" if fault else pod.name)
    more = f" and {len(pods) - 3} more" if len(pods) > 3 else ""  # noqa: PLR2004 - as above
    return "; ".join(told) + more
