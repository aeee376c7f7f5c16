"""Tenant: whose requests these are, and the keys that prove it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fleetward_api.resources.base import ApiModel
from fleetward_api.resources.condition import Conditions
from fleetward_api.resources.lists import DistinctValues, KeyedBy
from fleetward_api.resources.rules import absent
from fleetward_api.resources.scalars import (
    WHOLE,
    BigCount,
    Count,
    LabelName,
    MessageText,
    Moment,
    ObjectName,
    ShortText,
)
from fleetward_api.resources.tenant_limits import (
    JwtSpec,
    PlacementSpec,
    PrivacySpec,
    TenantQuotas,
)
from fleetward_api.resources.whole import Resource, name_rule


class SecretKeyRef(ApiModel):
    """Names one key of a Secret in the release's key namespace."""

    name: ObjectName
    """Name of the Secret."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")] = "key"
    """Key of the Secret's data."""


class ApiKey(ApiModel):
    """An API key of the tenant."""

    name: LabelName
    """Name of the key, for people and logs."""
    secret_ref: SecretKeyRef
    """Where the key lies, in the release's key namespace. Only its hash is kept in memory."""
    permission_scopes: Annotated[tuple[ShortText, ...], Field(max_length=32), DistinctValues()] = ()
    """Permission scopes of callers with this key, which bound reuse where a CachePolicy has
    `permissionScopes: Include`. Applies with the next request."""
    expires_at: Moment | None = None
    """From this moment (UTC) the key is unknown; never when absent."""


class TenantSpec(ApiModel):
    """Who the tenant is, and what it may use."""

    api_keys: Annotated[tuple[ApiKey, ...], Field(max_length=32), KeyedBy("name")] = ()
    """The tenant's API keys; without any, nobody can call as this tenant."""
    jwt: JwtSpec | None = None
    """Tokens of an identity provider. Not available yet."""
    weight: Annotated[int, Field(ge=1, le=100), WHOLE] = 1
    """Share of an engine's work under `spec.scheduling.policy: WeightedFair` of a service, relative
    to other tenants that wait. Applies with the next request."""
    priority: Annotated[int, Field(ge=-1000, le=1000), WHOLE] = 0
    """Higher goes first under `spec.scheduling.policy: Priority` of a service, and its cached
    blocks go last under `spec.eviction.policy: Priority` of a CachePolicy. Applies with the next
    request."""
    quotas: TenantQuotas | None = None
    """Limits of the tenant. Not available yet."""
    retention_class: LabelName | None = None
    """The retention class of the tenant's requests, by name, in whichever policy governs the
    service; a service whose policy lacks it stores nothing for this tenant."""
    privacy: PrivacySpec | None = None
    """What is masked before the engine sees it. Not available yet."""
    placement: PlacementSpec | None = None
    """Where the tenant's requests may run. Not available yet."""

    rules = (
        absent("jwt", "spec.jwt", "use spec.apiKeys"),
        absent("quotas", "spec.quotas", "remove it, tenants have no limits of their own"),
        absent("privacy", "spec.privacy", "mask the text before it is sent"),
        absent(
            "placement",
            "spec.placement",
            "bound the tenant by spec.access.tenantSelector of the services",
        ),
    )


class TenantStatus(ApiModel):
    """The state of a tenant as the operator last saw it."""

    message: MessageText | None = None
    """The state in one sentence."""
    observed_generation: BigCount | None = None
    """metadata.generation that this status speaks of."""
    keys: Count = 0
    """API keys in the spec."""
    ready_keys: Count = 0
    """API keys whose Secret exists and that have not expired."""
    conditions: Conditions = ()
    """The conditions of the tenant; docs/conditions.md explains types and reasons."""


class Tenant(Resource):
    """Whose requests and whose cache these are."""

    kind: Literal["Tenant"] = "Tenant"
    spec: TenantSpec = TenantSpec()
    status: TenantStatus = TenantStatus()

    rules = (name_rule(63),)
