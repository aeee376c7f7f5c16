"""The policy bundle: what a service's engines (and all gateways) must hold in force.

The operator pushes it with a generation that only grows; a member answers with what it holds.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any, Final, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from fleetward_api.canonical import (
    AnswerModel,
    Count,
    Digest,
    Name,
    OptionalName,
    WireModel,
    canonical_bytes,
    digest,
)
from fleetward_api.errors import KeyMalformed
from fleetward_api.floors import Floors
from fleetward_api.keys import decode_base64
from fleetward_api.scope import ScopeKind

Store = Literal["None", "Device", "DeviceAndHost"]
InFlight = Literal["Finish", "Abort"]
Isolation = Literal["Tenant", "User", "Session"]
PermissionScopes = Literal["Include", "Ignore"]
EvictionPolicy = Literal["LRU", "Priority"]
SchedulingPolicy = Literal["WeightedFair", "Priority", "FCFS"]
Percent = Annotated[int, Field(ge=0, le=100, strict=True)]
WireVersion = Annotated[int, Field(ge=1, le=65535, strict=True)]


class RetentionClass(WireModel):
    """How long, and where, cache of one class may live. None: no limit of its own."""

    store: Store = "Device"
    idle_ttl_ms: Count | None = None
    max_ttl_ms: Count | None = None


class Retention(WireModel):
    """Maxima for every block, and the named classes that a request may choose from."""

    idle_ttl_ms: Count | None = None
    max_ttl_ms: Count | None = None
    classes: dict[Name, RetentionClass] = Field(default_factory=dict)


class Deletion(WireModel):
    """How cache is destroyed: whether bytes are overwritten, what becomes of running requests."""

    scrub: bool = True
    in_flight: InFlight = "Finish"


class Eviction(WireModel):
    """Which cached blocks go first, and the part of a tenant's limit kept for reused ones."""

    policy: EvictionPolicy = "LRU"
    protected_share_percent: Percent = 0


class Quota(WireModel):
    """Shares of each engine's blocks per tenant: the most, and what others can't take."""

    max_share_percent: Annotated[Percent, Field(ge=1)] = 100
    guaranteed_share_percent: Percent = 0

    @model_validator(mode="after")
    def _fit_together(self) -> Quota:
        together = self.max_share_percent + self.guaranteed_share_percent
        if self.guaranteed_share_percent and together > 100:  # noqa: PLR2004 - percent
            raise ValueError("the largest and the guaranteed share exceed 100 percent together")
        return self


class HostTier(WireModel):
    """Host memory for blocks that leave the device, of classes that store `DeviceAndHost`."""

    size_bytes: Count
    encrypt: bool = True


class Tiers(WireModel):
    """Where blocks go beyond the device. None: nowhere."""

    host: HostTier | None = None


class Admission(WireModel):
    """When a request is turned away at once. None: never for that.

    Attributes:
        max_predicted_wait_ms: longest predicted time in the queue.
        kv_headroom_percent: part of the KV blocks that requests taken in must not come to need.
    """

    max_predicted_wait_ms: Annotated[Count, Field(ge=1)] | None = None
    kv_headroom_percent: Annotated[Percent, Field(le=99)] | None = None


class Scheduling(WireModel):
    """In which order requests are taken; `aging_after_ms` of waiting counts as one priority.

    `admission` is left out of the written form where it says nothing, as an engine from before it
    expects.
    """

    policy: SchedulingPolicy = "FCFS"
    aging_after_ms: Annotated[Count, Field(ge=1)] | None = None
    admission: Admission = Admission()

    @model_serializer(mode="wrap")
    def _leave_out_no_admission(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        if self.admission == Admission():
            del written["admission"]
        return written

    @model_validator(mode="after")
    def _ages_by_priority_only(self) -> Scheduling:
        if (self.policy == "Priority") == (self.aging_after_ms is None):
            raise ValueError("agingAfterMs goes with policy Priority, and with no other")
        return self


class SharedPrefix(WireModel):
    """A public text at the start of prompts, whose cache all tenants share."""

    name: Name
    text: Annotated[str, Field(min_length=1, max_length=32_768)]


class ServiceRef(WireModel):
    """The `InferenceService` that a bundle is for."""

    namespace: Name
    name: Name
    uid: Name


_LATER_PARTS: Final = ("eviction", "quota", "tiers", "scheduling", "shared_prefixes")
"""Parts of a bundle that were added after its first release."""


class PolicyBundle(WireModel):
    """Everything an engine needs to know of policy; never a secret.

    A later part that says no more than its default is left out of the written form, so that an
    engine from before it goes on reading bundles; one that asks for more is refused there.

    Attributes:
        generation: grows whenever `content_digest` changes.
        policy_name, policy_generation: the `CachePolicy` it was made from; `""` and 0 for defaults.
        epoch: number of the epoch whose secret keys the cache.
    """

    wire_version: WireVersion = 1
    service: ServiceRef
    generation: Count
    policy_name: OptionalName = ""
    policy_generation: Count = 0
    epoch: Count
    isolation: Isolation = "Tenant"
    permission_scopes: PermissionScopes = "Include"
    retention: Retention = Retention()
    deletion: Deletion = Deletion()
    eviction: Eviction = Eviction()
    quota: Quota = Quota()
    tiers: Tiers = Tiers()
    scheduling: Scheduling = Scheduling()
    shared_prefixes: Annotated[tuple[SharedPrefix, ...], Field(max_length=16)] = ()
    floors: Floors = Floors()

    @model_serializer(mode="wrap")
    def _leave_out_what_says_nothing(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        for part in _LATER_PARTS:
            told = type(self).model_fields[part]
            if getattr(self, part) == told.default:
                # Under its name here, or under that of the wire.
                written.pop(part, None)
                written.pop(told.alias or part, None)
        return written

    def separates(self, kind: ScopeKind) -> bool:
        """Whether these rules tell cache of a scope of this kind from its tenant's rest."""
        match kind:
            case "user":
                return self.isolation != "Tenant"
            case "permissionScope":
                return self.permission_scopes == "Include"
            case "tenant" | "documentTag":
                return True

    @property
    def digest(self) -> str:
        """Digest of the whole bundle, which an ack repeats."""
        return digest(canonical_bytes(self))

    @property
    def content_digest(self) -> str:
        """Digest of all but the generation: when it changes, the generation must grow."""
        return digest(canonical_bytes(self.model_copy(update={"generation": 0})))


class GatewayBundle(WireModel):
    """What gateways hold in force: the floors. `generation` is the floors' version."""

    wire_version: WireVersion = 1
    generation: Count
    floors: Floors = Floors()

    @classmethod
    def of(cls, floors: Floors) -> GatewayBundle:
        """Return the bundle that carries `floors`."""
        return cls(generation=floors.version, floors=floors)

    @property
    def digest(self) -> str:
        """Digest of the whole bundle, which an ack repeats."""
        return digest(canonical_bytes(self))

    @property
    def content_digest(self) -> str:
        """Digest of all but the generation."""
        return digest(canonical_bytes(self.model_copy(update={"generation": 0})))


class EpochSecret(WireModel):
    """The secret that keys all cache of an epoch: 32 bytes, base64. Sent only over pinned TLS."""

    number: Count
    secret: str = Field(repr=False)

    @classmethod
    def of(cls, number: int, raw: bytes) -> EpochSecret:
        """Wrap 32 raw bytes."""
        return cls(number=number, secret=base64.b64encode(raw).decode())

    @field_validator("secret")
    @classmethod
    def _is_32_bytes(cls, secret: str) -> str:
        try:
            decode_base64(secret, what="the epoch secret")
        except KeyMalformed as fault:
            raise ValueError(fault.message) from None
        return secret

    @property
    def raw(self) -> bytes:
        """The 32 bytes."""
        return decode_base64(self.secret, what="the epoch secret")


class BundlePush(WireModel):
    """Body of `PUT /policy` to an engine. The epoch is null when it has not changed."""

    bundle: PolicyBundle
    epoch: EpochSecret | None = None


class GatewayPush(WireModel):
    """Body of `PUT /policy` to a gateway, which never needs an epoch secret."""

    bundle: GatewayBundle


class BundleAck(AnswerModel):
    """A member's word on what it holds in force, after it took a bundle or refused an older one."""

    pod_uid: Name
    generation: Count
    floors_version: Count
    digest: Digest
