"""CachePolicy: who may reuse what, for how long, and how it is destroyed."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from fleetward_api.quantity import parse_duration
from fleetward_api.resources.base import ApiModel
from fleetward_api.resources.condition import Conditions
from fleetward_api.resources.lists import KeyedBy
from fleetward_api.resources.policy_content import (
    MAX_SHARED_BYTES,
    LoggingSpec,
    SharedPrefix,
    TelemetrySpec,
    TiersSpec,
    shared_bytes,
)
from fleetward_api.resources.policy_shares import EvictionSpec, QuotaSpec
from fleetward_api.resources.rules import Rule, absent
from fleetward_api.resources.scalars import (
    BigCount,
    Count,
    Duration,
    LabelName,
    LongDuration,
    MessageText,
    Moment,
)
from fleetward_api.resources.whole import Resource, name_rule

Store: TypeAlias = Literal["None", "Device", "DeviceAndHost"]
_HOUR_MS = 3_600_000


def _not_above(first: str | None, second: str | None) -> bool:
    return first is None or second is None or parse_duration(first) <= parse_duration(second)


class RetentionClassSpec(ApiModel):
    """A named class of retention that a tenant or a request may choose."""

    name: LabelName
    """Name of the class."""
    store: Store = "Device"
    """Where blocks may be kept: None keeps nothing for reuse; DeviceAndHost also keeps what has to
    leave the device, in the host memory that spec.tiers.host lets the class use. Live."""
    idle_ttl: Duration | None = None
    """Longest time since the last use; the policy's own when absent."""
    max_ttl: Duration | None = None
    """Longest time since the block was made; the policy's own when absent."""

    rules = (
        Rule(
            cel="self.store != 'None' || (!has(self.idleTTL) && !has(self.maxTTL))",
            message="a class with store None keeps nothing: remove its idleTTL and maxTTL",
            holds=lambda self: (
                self.store != "None" or (self.idle_ttl is None and self.max_ttl is None)
            ),
            field="store",
        ),
        Rule(
            cel=(
                "!has(self.idleTTL) || !has(self.maxTTL)"
                " || duration(self.idleTTL) <= duration(self.maxTTL)"
            ),
            message="idleTTL of a class is above its maxTTL: lower idleTTL",
            holds=lambda self: _not_above(self.idle_ttl, self.max_ttl),
            field="idle_ttl",
        ),
    )


class RetentionSpec(ApiModel):
    """How long blocks are kept. Every time is a maximum, never a minimum."""

    idle_ttl: Duration = "30m"
    """Longest time since the last use."""
    max_ttl: Duration = "24h"
    """Longest time since the block was made, however often it is used."""
    classes: Annotated[tuple[RetentionClassSpec, ...], Field(max_length=16), KeyedBy("name")] = ()
    """Named classes; a tenant names its class, a request may only choose a stricter one."""

    rules = (
        Rule(
            cel="duration(self.idleTTL) <= duration(self.maxTTL)",
            message=(
                "spec.retention.idleTTL is above spec.retention.maxTTL (30m and 24h where absent): "
                "lower idleTTL or raise maxTTL"
            ),
            holds=lambda self: _not_above(self.idle_ttl, self.max_ttl),
            field="idle_ttl",
        ),
        Rule(
            cel=(
                "!has(self.classes) || self.classes.all(c,"
                " (!has(c.idleTTL) || duration(c.idleTTL) <= duration(self.idleTTL))"
                " && (!has(c.maxTTL) || duration(c.maxTTL) <= duration(self.maxTTL)))"
            ),
            message=(
                "a class in spec.retention.classes keeps longer than spec.retention: "
                "lower the class's times or raise the policy's"
            ),
            holds=lambda self: all(
                _not_above(entry.idle_ttl, self.idle_ttl)
                and _not_above(entry.max_ttl, self.max_ttl)
                for entry in self.classes
            ),
            field="classes",
        ),
    )


class EvidenceSpec(ApiModel):
    """What is kept to show that data was deleted."""

    retain: LongDuration = "2160h"
    """How long the evidence of a purge is kept after it ended."""


class DeletionSpec(ApiModel):
    """How cache is destroyed."""

    scrub: bool = True
    """Whether the bytes are overwritten, beyond being made unreachable."""
    deadline: LongDuration = "1m"
    """Longest time for a deletion that the operator starts itself, as when a tenant is removed."""
    in_flight: Literal["Finish", "Abort"] = "Abort"
    """What happens to running requests of a purged scope: they are aborted, or may finish (and
    store nothing) within the purge's deadline."""
    on_permission_change: Literal["Purge", "Expire"] | None = None
    """What happens when a caller loses a permission. Not available yet."""
    evidence: EvidenceSpec = EvidenceSpec()
    """What is kept to show that data was deleted."""

    rules = (
        absent(
            "on_permission_change",
            "spec.deletion.onPermissionChange",
            "remove it and create a CachePurge when permissions change",
        ),
    )


_STORES_ON_HOST: Final = (
    "(has(self.retention.classes) && self.retention.classes.exists(c, c.store == 'DeviceAndHost'))"
)


def _stores_on_host(spec: CachePolicySpec) -> bool:
    return any(entry.store == "DeviceAndHost" for entry in spec.retention.classes)


class CachePolicySpec(ApiModel):
    """Who may reuse what, for how long, and how it is destroyed."""

    namespace_default: bool = False
    """Whether services of the namespace without a `cachePolicyRef` follow this policy. Of several
    such policies the oldest counts, and the others say so."""
    isolation: Literal["Tenant", "User", "Session"] = "Tenant"
    """Within which authenticated identity cache is reused: the tenant, one user of it, or one
    session of a user. Who names no user (or no session) then uses no cache, and the answer says so
    (`Fleetward-Retention`). Live; what was shared by other rules is dropped."""
    permission_scopes: Literal["Include", "Ignore"] = "Ignore"
    """Whether the permission scopes of the caller's API key also bound reuse: only callers with
    the very same ones share. Live; what was shared by other rules is dropped."""
    shared_prefixes: Annotated[tuple[SharedPrefix, ...], Field(max_length=16), KeyedBy("name")] = ()
    """Public texts whose cache all tenants share: the only thing that is ever shared between them.
    A prompt uses as much of one as it begins with, in whole blocks; the rest is private. Live."""
    retention: RetentionSpec = RetentionSpec()
    """How long blocks are kept."""
    eviction: EvictionSpec = EvictionSpec()
    """Which cached blocks go first when there is no room."""
    quota: QuotaSpec | None = None
    """Shares of each engine's KV blocks, per tenant."""
    tiers: TiersSpec | None = None
    """Where blocks go that have to leave the device to make room."""
    salt_rotation: LongDuration | None = None
    """How often the secret behind all cache keys is replaced, which puts all older cache out of
    reach at once. One secret keys the cache of all services of a release: the shortest time of all
    policies that a service follows counts. From 1h; never when absent. Live."""
    deletion: DeletionSpec = DeletionSpec()
    """How cache is destroyed."""
    telemetry: TelemetrySpec = TelemetrySpec()
    """What of the content may enter traces and metrics."""
    logging: LoggingSpec = LoggingSpec()
    """What of the content may enter logs."""

    rules = (
        Rule(
            cel=(
                "!has(self.sharedPrefixes) || self.sharedPrefixes.map(p, size(bytes(p.text))).sum()"
                f" <= {MAX_SHARED_BYTES}"
            ),
            message=(
                f"spec.sharedPrefixes hold more than {MAX_SHARED_BYTES // 1024} KiB of text "
                "together: shorten them"
            ),
            holds=lambda self: shared_bytes(self.shared_prefixes) <= MAX_SHARED_BYTES,
            field="shared_prefixes",
        ),
        Rule(
            cel=f"!{_STORES_ON_HOST} || (has(self.tiers) && has(self.tiers.host))",
            message=(
                "a class in spec.retention.classes has store DeviceAndHost: give it host memory "
                "with spec.tiers.host, or set it to Device"
            ),
            holds=lambda self: (
                not _stores_on_host(self)
                or (self.tiers is not None and self.tiers.host is not None)
            ),
            field="tiers",
        ),
        Rule(
            cel=f"!has(self.tiers) || !has(self.tiers.host) || {_STORES_ON_HOST}",
            message=(
                "no class in spec.retention.classes has store DeviceAndHost, so nothing would use "
                "spec.tiers.host: give one that store, or remove spec.tiers"
            ),
            holds=lambda self: (
                self.tiers is None or self.tiers.host is None or _stores_on_host(self)
            ),
            field="tiers",
        ),
        Rule(
            cel="!has(self.saltRotation) || duration(self.saltRotation) >= duration('1h')",
            message=(
                "spec.saltRotation is below 1h: raise it, each rotation empties the cache of every "
                "service"
            ),
            holds=lambda self: (
                self.salt_rotation is None or parse_duration(self.salt_rotation) >= _HOUR_MS
            ),
            field="salt_rotation",
        ),
    )


class SaltRotationStatus(ApiModel):
    """The epoch of the cache, which each rotation counts up."""

    epoch: BigCount
    """Number of the epoch in force."""
    rotated_at: Moment
    """When it began."""


class CachePolicyStatus(ApiModel):
    """The state of a policy as the operator last saw it."""

    message: MessageText | None = None
    """The state in one sentence."""
    observed_generation: BigCount | None = None
    """metadata.generation that this status speaks of."""
    services: Count = 0
    """Services that follow this policy."""
    enforced_services: Count = 0
    """Services of which every replica has this generation in force."""
    salt_rotation: SaltRotationStatus | None = None
    """The last rotation, of a policy that asks for them."""
    conditions: Conditions = ()
    """The conditions of the policy; docs/conditions.md explains types and reasons."""


class CachePolicy(Resource):
    """Who may reuse KV cache, how long it lives, and how it is destroyed."""

    kind: Literal["CachePolicy"] = "CachePolicy"
    spec: CachePolicySpec = CachePolicySpec()
    status: CachePolicyStatus = CachePolicyStatus()

    rules = (name_rule(63),)
