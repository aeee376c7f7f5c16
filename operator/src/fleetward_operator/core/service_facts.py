"""The single aspects of a service, each as one condition: status, reason, sentence.

Types and reasons, with their meanings, are those of `fleetward_api.condition_types`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetward_api.resources.condition import ConditionStatus
from fleetward_operator.core.desired import wanted_replicas
from fleetward_operator.core.observed import ServiceObserved
from fleetward_operator.core.pods import PodSeen

NAMED_PODS = 3


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
    """Nobody can say."""
    return Verdict(status="Unknown", reason=reason, message=message)


def decide_model_loaded(seen: ServiceObserved) -> Verdict:
    """Whether the engines hold the model; an engine's own words when one cannot."""
    if not seen.running:
        if wanted_replicas(seen.service.spec) == 0:
            return fails("Idle", "No engine is wanted; the next one loads the model.")
        return unknown("NoReplica", "No engine runs yet.")
    faults = [
        f"Engine {pod.name}: {seen.states[pod.uid].fault}"
        for pod in seen.running
        if pod.uid in seen.states and seen.states[pod.uid].fault
    ]
    if faults:
        return fails("ModelFailed", " ".join(faults)[:1024])
    loaded = [pod for pod in seen.running if _model_digest(seen, pod)]
    if not loaded:
        return fails("Loading", f"{len(seen.running)} engine(s) are loading the model.")
    digests = {_model_digest(seen, pod): pod.name for pod in loaded}
    if len(digests) > 1:
        told = ", ".join(f"{name} has {digest}" for digest, name in sorted(digests.items()))
        return fails("DigestsDiffer", f"Engines loaded different files: {told}.")
    if seen.service.spec.engine.runner == "Simulated":
        return holds("Simulated", "The simulated runner serves: its answers mean nothing.")
    return holds("Loaded", f"{len(loaded)} engine(s) hold {seen.service.spec.model.source}.")


def decide_route_ready(seen: ServiceObserved) -> Verdict:
    """Whether the gateway sends requests here."""
    if seen.name_conflict is not None:
        return fails(seen.name_conflict.reason, seen.name_conflict.message)
    if seen.service.spec.access.tenant_selector is None:
        return fails(
            "NobodyAllowed",
            "spec.access.tenantSelector is absent, so no tenant may call the service: set it.",
        )
    if seen.ready:
        return holds("Routed", f"The gateway routes to {len(seen.ready)} engine(s).")
    if wanted_replicas(seen.service.spec) == 0:
        return fails("Idle", "No engine is wanted; requests are answered 503.")
    return fails("NoEndpoint", "No engine is ready; requests are answered 503.")


def decide_scaling_active(seen: ServiceObserved) -> Verdict:
    """Whether we decide the number of replicas."""
    spec = seen.service.spec
    count = wanted_replicas(spec)
    if spec.scaling.mode == "External":
        words = f"spec.scaling.mode is External: the scale subresource says {count}."
        return fails("External", words)
    return holds("FixedReplicas", f"Replicas follow spec.scaling.minReplicas: {count}.")


def decide_policy_enforced(seen: ServiceObserved) -> Verdict:
    """Whether every engine that runs holds the wanted bundle in force."""
    missing = seen.choice.missing
    if missing is not None:
        kept = "" if seen.bundle is None else " Engines keep the rules they had until then."
        return fails(missing.reason, missing.message + kept)
    if seen.bundle is None:
        return unknown("NotObserved", "No bundle was made yet.")
    policy = f"CachePolicy {seen.choice.name}" if seen.choice.name else "The built-in policy"
    what = f"{policy} (bundle generation {seen.bundle.generation})"
    waiting = [pod for pod in seen.running if not seen.has_acked(pod)]
    if waiting:
        names = named_engines(seen, waiting)
        return fails("WaitingForAcks", f"{what} is not in force yet in {names}.")
    if seen.running:
        return holds("AllAcked", f"{what} is in force in all {len(seen.running)} engine(s).")
    return holds("NoReplica", f"{what} is what the next engine starts with.")


def _model_digest(seen: ServiceObserved, pod: PodSeen) -> str:
    state = seen.states.get(pod.uid)
    return "" if state is None or state.model is None else state.model.model_digest or "unnamed"


def named_engines(seen: ServiceObserved, pods: Sequence[PodSeen]) -> str:
    """A few of these pods by name, with why the last push to each failed."""
    told = []
    for pod in pods[:NAMED_PODS]:
        fault = seen.push_faults.get(pod.uid, "")
        told.append(f"{pod.name} ({fault})" if fault else pod.name)
    more = len(pods) - NAMED_PODS
    return "; ".join(told) + (f" and {more} more" if more > 0 else "")
