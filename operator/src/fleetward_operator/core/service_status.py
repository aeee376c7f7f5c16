"""The status of a service: all its conditions and numbers, from what was seen."""

from __future__ import annotations

import datetime as dt

from fleetward_api.admin import MemberState
from fleetward_api.resources import (
    EngineStatus,
    InferenceServiceStatus,
    MemoryPart,
    MemoryStatus,
    ModelStatus,
    PolicyInForce,
)
from fleetward_operator.core.desired import wanted_replicas
from fleetward_operator.core.isolation import decide_isolation_verified, isolation_subject
from fleetward_operator.core.kv_report import report_kv
from fleetward_operator.core.observed import ServiceConfig, ServiceObserved
from fleetward_operator.core.service_facts import (
    decide_model_loaded,
    decide_policy_enforced,
    decide_route_ready,
    decide_scaling_active,
)
from fleetward_operator.core.service_ready import Overall
from fleetward_operator.core.verdicts import conditions_from
from fleetward_operator.manifests.labels import engine_selector

MAX_TEXT = 512


def build_status(
    seen: ServiceObserved, overall: Overall, *, config: ServiceConfig, now: dt.datetime
) -> InferenceServiceStatus:
    """The whole status; equal to the one before when nothing has changed."""
    service = seen.service
    generation = service.metadata.generation
    wanted = wanted_replicas(service.spec)
    isolation = decide_isolation_verified(seen)
    verdicts = {
        "Ready": overall.ready,
        "Progressing": overall.progressing,
        "Degraded": overall.degraded,
        "Reconciling": overall.reconciling,
        "Stalled": overall.stalled,
        "ModelLoaded": decide_model_loaded(seen),
        "RouteReady": decide_route_ready(seen),
        "ScalingActive": decide_scaling_active(seen),
        "CachePolicyEnforced": decide_policy_enforced(seen),
        "IsolationVerified": isolation,
    }
    return InferenceServiceStatus(
        message=overall.ready.message,
        observed_generation=generation,
        replicas=len(seen.present),
        ready_replicas=len(seen.ready),
        replica_summary=f"{len(seen.ready)}/{wanted}",
        selector=",".join(
            f"{k}={v}" for k, v in sorted(engine_selector(service.metadata.name).items())
        ),
        url=config.gateway_url or None,
        model=_model(seen),
        memory=_memory(seen),
        engine=_engine(seen, config),
        cache_policy=_policy(seen),
        kv_cache=report_kv(
            (seen.states[pod.uid] for pod in seen.running if pod.uid in seen.states),
            unread=any(pod.uid not in seen.states for pod in seen.ready),
            before=seen.status.kv_cache,
            now=now,
        ),
        isolation_subject=isolation_subject(seen) if isolation.reason == "Verified" else None,
        conditions=conditions_from(
            seen.status.conditions, verdicts, generation=generation, now=now
        ),
    )


def _some_state(seen: ServiceObserved) -> MemberState | None:
    """The state of one engine that has loaded the model: the oldest, so that it does not flap."""
    loaded = [
        pod
        for pod in seen.running
        if pod.uid in seen.states and seen.states[pod.uid].model is not None
    ]
    oldest = min(loaded, key=lambda pod: (pod.created, pod.uid), default=None)
    return None if oldest is None else seen.states[oldest.uid]


def _model(seen: ServiceObserved) -> ModelStatus | None:
    state = _some_state(seen)
    if state is None or state.model is None:
        # What was loaded last stays true of an idle service.
        return seen.status.model
    model = state.model
    return ModelStatus(
        digest=model.model_digest or None,
        tokenizer_digest=model.tokenizer_digest or None,
        chat_template_digest=model.chat_template_digest or None,
        kv_layout=model.kv_layout[:MAX_TEXT] or None,
    )


def _memory(seen: ServiceObserved) -> MemoryStatus | None:
    state = _some_state(seen)
    if state is None or state.model is None:
        return seen.status.memory
    memory = state.model.memory
    if memory is None:
        return None
    parts = (MemoryPart(name=name, bytes=size) for name, size in memory.parts if size)
    return MemoryStatus(available_bytes=memory.available_bytes, parts=tuple(parts))


def _engine(seen: ServiceObserved, config: ServiceConfig) -> EngineStatus:
    spec = seen.service.spec.engine
    state = _some_state(seen)
    before = seen.status.engine
    version = state.model.engine_version if state and state.model else None
    return EngineStatus(
        image=spec.image or config.rules.default_image,
        version=version or (before.version if before else None),
        runner=spec.runner,
    )


def _policy(seen: ServiceObserved) -> PolicyInForce | None:
    if seen.bundle is None:
        return None
    return PolicyInForce(
        name=seen.bundle.policy_name or None,
        generation=seen.bundle.policy_generation or None,
        bundle_generation=seen.bundle.generation,
        acked_replicas=sum(1 for pod in seen.running if seen.has_acked(pod)),
    )
