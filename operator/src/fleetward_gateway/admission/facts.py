"""What the gateway keeps of each object it watches: frozen values, no secrets."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetward_api.resources.selectors import LabelSelector


@dataclass(frozen=True, slots=True)
class KeyRef:
    """Where one API key of a tenant is kept.

    Attributes:
        name: of the key in the tenant's list.
        secret: name of the Secret in the key namespace.
        field: entry of that Secret.
        expires_at: epoch seconds, or None.
        permission_scopes: of whoever calls with it.
    """

    name: str
    secret: str
    field: str
    expires_at: float | None
    permission_scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TenantFacts:
    """A Tenant, as far as requests need it.

    Attributes:
        labels: what `access.tenantSelector` of a service looks at.
        retention_class: "" for the policy's own retention.
        deleting: its keys open nothing any more.
    """

    name: str
    uid: str
    created: str
    labels: tuple[tuple[str, str], ...] = ()
    weight: int = 1
    priority: int = 0
    retention_class: str = ""
    keys: tuple[KeyRef, ...] = ()
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """An InferenceService, as far as requests need it.

    Attributes:
        created: RFC 3339 in UTC, so that text order is time order.
        names: the served name, then its aliases.
        selector: None means nobody may call it.
        policy: name of its CachePolicy in its namespace, "" for the namespace's default.
    """

    namespace: str
    name: str
    uid: str
    created: str
    names: tuple[str, ...]
    selector: LabelSelector | None
    policy: str = ""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """How long cache may live and where; None is no limit of its own.

    Attributes:
        store: rank of the store: 0 nothing is kept, 1 device, 2 device and host.
    """

    store: int = 2
    idle_ttl_ms: int | None = None
    max_ttl_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """A CachePolicy, as far as requests need it.

    Attributes:
        created: RFC 3339 in UTC.
        default: it governs the namespace's services that name no policy.
        base: what no class may exceed.
        classes: retention classes by name.
    """

    namespace: str
    name: str
    uid: str
    created: str
    default: bool
    base: RetentionLimits
    classes: dict[str, RetentionLimits] = field(default_factory=dict)
