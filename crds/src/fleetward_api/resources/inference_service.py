"""InferenceService: what to serve, with what, for whom."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from fleetward_api.quantity import quantity_fraction
from fleetward_api.resources.base import ApiModel
from fleetward_api.resources.rules import Rule, absent
from fleetward_api.resources.scalars import ObjectName, ReplicaCount
from fleetward_api.resources.selectors import LabelSelector
from fleetward_api.resources.service_engine import EngineSpec
from fleetward_api.resources.service_goals import OverloadSpec, SchedulingSpec, SloSpec
from fleetward_api.resources.service_model import ModelSpec
from fleetward_api.resources.service_resources import ResourcesSpec
from fleetward_api.resources.service_scaling import RolloutSpec, ScalingSpec
from fleetward_api.resources.service_status import InferenceServiceStatus
from fleetward_api.resources.whole import Resource, name_rule


class AccessSpec(ApiModel):
    """Who may call the service. Nobody, unless it says so."""

    tenant_selector: LabelSelector | None = None
    """Tenants, by their labels, that may call the service; nobody when absent, every tenant when
    empty."""


class CachePolicyRef(ApiModel):
    """Names a CachePolicy in the service's namespace."""

    name: ObjectName
    """Name of the CachePolicy."""


def _kv_in_container(spec: InferenceServiceSpec) -> Fraction:
    """Bytes of the container's memory that KV blocks may take, as far as the spec says."""
    device = None if spec.resources.accelerator is not None else spec.engine.kv_memory
    return quantity_fraction(spec.engine.host_kv_memory or 0) + quantity_fraction(device or 0)


class InferenceServiceSpec(ApiModel):
    """What to serve, with what, for whom."""

    model: ModelSpec
    """The model and the names it is served under."""
    engine: EngineSpec = EngineSpec()
    """How the engine runs."""
    resources: ResourcesSpec = ResourcesSpec()
    """What one replica asks of a node."""
    replicas: ReplicaCount = 1
    """Replicas in `scaling.mode: External`, written through the scale subresource; 1 otherwise."""
    scaling: ScalingSpec = ScalingSpec()
    """How many replicas run."""
    slo: SloSpec | None = None
    """Service level objectives. Not available yet."""
    scheduling: SchedulingSpec = SchedulingSpec()
    """In which order the engine takes requests."""
    overload: OverloadSpec = OverloadSpec()
    """What happens when the service is full."""
    rollout: RolloutSpec = RolloutSpec()
    """How pods are replaced when the service changes."""
    access: AccessSpec = AccessSpec()
    """Who may call the service."""
    cache_policy_ref: CachePolicyRef | None = None
    """The CachePolicy; the namespace's default policy when absent, else the built-in defaults."""

    rules = (
        absent("slo", "spec.slo", "remove it, nothing enforces objectives in this release"),
        Rule(
            cel="self.scaling.mode == 'External' || self.replicas == 1",
            message=(
                "spec.replicas counts only with spec.scaling.mode External: set "
                "spec.scaling.minReplicas and leave spec.replicas at 1, or choose External"
            ),
            holds=lambda self: self.scaling.mode == "External" or self.replicas == 1,
            field="replicas",
        ),
        Rule(
            cel="self.engine.runner != 'Simulated' || !has(self.resources.accelerator)",
            message=(
                "spec.engine.runner Simulated computes nothing: remove spec.resources.accelerator"
            ),
            holds=lambda self: (
                self.engine.runner != "Simulated" or self.resources.accelerator is None
            ),
            field="resources",
        ),
        Rule(
            cel=(
                "!has(self.engine.kvMemory) || has(self.resources.accelerator)"
                " || quantity(string(self.engine.kvMemory))"
                ".isLessThan(quantity(string(self.resources.memory)))"
            ),
            message=(
                "spec.engine.kvMemory must be below spec.resources.memory: without an accelerator "
                "the KV pool lies in the container's memory"
            ),
            holds=lambda self: (
                self.engine.kv_memory is None
                or self.resources.accelerator is not None
                or quantity_fraction(self.engine.kv_memory)
                < quantity_fraction(self.resources.memory)
            ),
            field="engine",
        ),
        Rule(
            cel=(
                "!has(self.engine.hostKvMemory)"
                " || (has(self.engine.kvMemory) && !has(self.resources.accelerator)"
                " ? quantity(string(self.engine.hostKvMemory))"
                ".add(quantity(string(self.engine.kvMemory)))"
                " : quantity(string(self.engine.hostKvMemory)))"
                ".isLessThan(quantity(string(self.resources.memory)))"
            ),
            message=(
                "spec.engine.hostKvMemory, with spec.engine.kvMemory where there is no accelerator,"
                " must be below spec.resources.memory: it lies in the container's memory"
            ),
            holds=lambda self: (
                self.engine.host_kv_memory is None
                or _kv_in_container(self) < quantity_fraction(self.resources.memory)
            ),
            field="engine",
        ),
    )


class InferenceService(Resource):
    """A model behind the gateway: replicas of the engine, who may call them, under which policy."""

    kind: Literal["InferenceService"] = "InferenceService"
    spec: InferenceServiceSpec
    status: InferenceServiceStatus = InferenceServiceStatus()

    rules = (name_rule(50),)
