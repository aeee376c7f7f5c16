"""Kubernetes objects to the facts that admission works on."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from fleetward_api.quantity import parse_duration
from fleetward_api.resources import (
    RetentionClassSpec,
    RetentionSpec,
    parse_cache_policy,
    parse_inference_service,
    parse_tenant,
)
from fleetward_gateway.admission.facts import (
    KeyRef,
    PolicyFacts,
    RetentionLimits,
    ServiceFacts,
    TenantFacts,
)

_STORE_RANK: Final = {"None": 0, "Device": 1, "DeviceAndHost": 2}


def tenant_facts(item: Mapping[str, Any]) -> TenantFacts:
    """Read a Tenant. Raises `InvalidResource`."""
    tenant = parse_tenant(item)
    meta, spec = tenant.metadata, tenant.spec
    keys = tuple(
        KeyRef(
            key.name,
            key.secret_ref.name,
            key.secret_ref.key,
            None if key.expires_at is None else datetime.fromisoformat(key.expires_at).timestamp(),
            tuple(sorted(key.permission_scopes)),
        )
        for key in spec.api_keys
    )
    return TenantFacts(
        name=meta.name,
        uid=meta.uid,
        created=meta.creation_timestamp,
        labels=tuple(sorted(meta.labels.items())),
        weight=spec.weight,
        priority=spec.priority,
        retention_class=spec.retention_class or "",
        keys=keys,
        deleting=meta.deleting,
    )


def service_facts(item: Mapping[str, Any]) -> ServiceFacts:
    """Read an InferenceService. Raises `InvalidResource`."""
    service = parse_inference_service(item)
    meta, spec = service.metadata, service.spec
    return ServiceFacts(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        created=meta.creation_timestamp,
        names=(spec.model.name, *spec.model.aliases),
        selector=spec.access.tenant_selector,
        policy=spec.cache_policy_ref.name if spec.cache_policy_ref else "",
    )


def policy_facts(item: Mapping[str, Any]) -> PolicyFacts:
    """Read a CachePolicy. Raises `InvalidResource`."""
    policy = parse_cache_policy(item)
    meta, retention = policy.metadata, policy.spec.retention
    return PolicyFacts(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        created=meta.creation_timestamp,
        default=policy.spec.namespace_default,
        base=_base_limits(retention),
        classes={entry.name: _class_limits(entry) for entry in retention.classes},
    )


def _base_limits(retention: RetentionSpec) -> RetentionLimits:
    return RetentionLimits(
        idle_ttl_ms=parse_duration(retention.idle_ttl), max_ttl_ms=parse_duration(retention.max_ttl)
    )


def _class_limits(entry: RetentionClassSpec) -> RetentionLimits:
    return RetentionLimits(
        _STORE_RANK[entry.store],
        None if entry.idle_ttl is None else parse_duration(entry.idle_ttl),
        None if entry.max_ttl is None else parse_duration(entry.max_ttl),
    )
