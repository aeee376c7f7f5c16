"""What one replica asks of a node: the ``resources`` part of an InferenceService."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fleetward_api.resources.base import ApiModel
from fleetward_api.resources.lists import Atomic, KeyedBy
from fleetward_api.resources.rules import Rule, empty
from fleetward_api.resources.scalars import WHOLE, CpuAmount, LabelName, MemoryAmount, ObjectName
from fleetward_api.resources.selectors import LabelKey, LabelMap, LabelValue


class AcceleratorSpec(ApiModel):
    """Accelerators as an extended resource of the node."""

    resource: Annotated[
        str,
        Field(
            max_length=253,
            pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        ),
    ] = "nvidia.com/gpu"
    """Name of the extended resource."""
    count: Annotated[int, Field(ge=1, le=64), WHOLE] = 1
    """Accelerators per replica; equals tensor times pipeline parallelism, so 1 today."""

    rules = (
        Rule(
            cel="self.count == 1",
            message=(
                "spec.resources.accelerator.count other than 1 is not available yet: "
                "set it to 1, a replica computes on one accelerator"
            ),
            holds=lambda self: self.count == 1,
            field="count",
        ),
    )


class ResourceClaim(ApiModel):
    """A device claim of dynamic resource allocation."""

    name: LabelName
    """Name of the claim inside the pod."""
    resource_claim_name: ObjectName | None = None
    """An existing ResourceClaim in the service's namespace."""
    resource_claim_template_name: ObjectName | None = None
    """A ResourceClaimTemplate in the service's namespace, one claim per pod."""


class Toleration(ApiModel):
    """Lets pods onto nodes with a matching taint."""

    key: LabelKey | None = None
    """The taint's key; absent, with operator Exists, means every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """How key and value are compared."""
    value: LabelValue | None = None
    """The taint's value, for operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; absent means every effect."""
    toleration_seconds: Annotated[int, Field(ge=0, le=31_536_000), WHOLE] | None = None
    """Seconds that a NoExecute taint is borne, for ever when absent."""

    rules = (
        Rule(
            cel="self.operator != 'Exists' || !has(self.value) || self.value == ''",
            message="a toleration with operator Exists takes no value: remove the value",
            holds=lambda self: self.operator != "Exists" or not self.value,
            field="value",
        ),
        Rule(
            cel="self.operator != 'Equal' || has(self.key)",
            message="a toleration without a key needs operator Exists: set the operator or the key",
            holds=lambda self: self.operator != "Equal" or self.key is not None,
            field="key",
        ),
        Rule(
            cel=(
                "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')"
            ),
            message="tolerationSeconds needs effect NoExecute: set it or remove the seconds",
            holds=lambda self: self.toleration_seconds is None or self.effect == "NoExecute",
            field="toleration_seconds",
        ),
    )


class ResourcesSpec(ApiModel):
    """What one replica asks of a node. Memory is never overcommitted; spare CPU may be used."""

    accelerator: AcceleratorSpec | None = None
    """Accelerators as an extended resource; the CPU computes when absent."""
    resource_claims: Annotated[tuple[ResourceClaim, ...], Field(max_length=8), KeyedBy("name")] = ()
    """Devices by dynamic resource allocation, instead of `accelerator`. Not available yet."""
    cpu: CpuAmount = "1"
    """CPU of the engine container, in cores as a quantity; a request without a limit, since
    throttling would stall every stream for the rest of a scheduling period."""
    memory: MemoryAmount = "2Gi"
    """Memory of the engine container, in bytes as a quantity; request and limit."""
    node_selector: LabelMap = Field(default={})
    """Labels that a node must have."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32), Atomic()] = ()
    """Taints that the pods bear."""
    priority_class_name: ObjectName | None = None
    """PriorityClass of the pods."""

    rules = (
        empty(
            "resource_claims",
            "spec.resources.resourceClaims",
            "ask for devices with spec.resources.accelerator",
        ),
    )
