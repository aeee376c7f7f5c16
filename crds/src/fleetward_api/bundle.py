"""The policy bundle: what a service's engines (and all gateways) must hold in force.

The operator pushes it with a generation that only grows; a member answers with what it holds.
"""

from __future__ import annotations

import base64
from typing import Annotated, Literal

from pydantic import Field, field_validator

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

Store = Literal["None", "Device", "DeviceAndHost"]
InFlight = Literal["Finish", "Abort"]
Isolation = Literal["Tenant", "User", "Session"]
PermissionScopes = Literal["Include", "Ignore"]
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


class ServiceRef(WireModel):
    """The `InferenceService` that a bundle is for."""

    namespace: Name
    name: Name
    uid: Name


class PolicyBundle(WireModel):
    """Everything an engine needs to know of policy; never a secret.

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
    floors: Floors = Floors()

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
