"""The four resources of the group ``fleetward.io/v1alpha1``."""

from __future__ import annotations

from fleetward_api.resources.cache_policy import (
    CachePolicy,
    CachePolicySpec,
    CachePolicyStatus,
    DeletionSpec,
    RetentionClassSpec,
    RetentionSpec,
)
from fleetward_api.resources.cache_purge import (
    CachePurge,
    CachePurgeSpec,
    CachePurgeStatus,
    NotCovered,
    PurgePhase,
    ReceiptSummary,
)
from fleetward_api.resources.errors import Fault, InvalidResource
from fleetward_api.resources.inference_service import (
    AccessSpec,
    CachePolicyRef,
    InferenceService,
    InferenceServiceSpec,
)
from fleetward_api.resources.metadata import ObjectMeta
from fleetward_api.resources.selectors import LabelRequirement, LabelSelector
from fleetward_api.resources.service_engine import EngineSpec
from fleetward_api.resources.service_model import ModelSpec
from fleetward_api.resources.service_resources import AcceleratorSpec, ResourcesSpec, Toleration
from fleetward_api.resources.service_scaling import RolloutSpec, ScalingSpec
from fleetward_api.resources.service_status import (
    EngineStatus,
    InferenceServiceStatus,
    KvCacheStatus,
    KvHolding,
    MemoryPart,
    MemoryStatus,
    ModelStatus,
    PolicyInForce,
)
from fleetward_api.resources.tenant import ApiKey, SecretKeyRef, Tenant, TenantSpec, TenantStatus
from fleetward_api.resources.whole import GROUP, VERSION, Resource

parse_inference_service = InferenceService.parse
parse_cache_policy = CachePolicy.parse
parse_tenant = Tenant.parse
parse_cache_purge = CachePurge.parse

__all__ = [
    "GROUP",
    "VERSION",
    "AcceleratorSpec",
    "AccessSpec",
    "ApiKey",
    "CachePolicy",
    "CachePolicyRef",
    "CachePolicySpec",
    "CachePolicyStatus",
    "CachePurge",
    "CachePurgeSpec",
    "CachePurgeStatus",
    "DeletionSpec",
    "EngineSpec",
    "EngineStatus",
    "Fault",
    "InferenceService",
    "InferenceServiceSpec",
    "InferenceServiceStatus",
    "InvalidResource",
    "KvCacheStatus",
    "KvHolding",
    "LabelRequirement",
    "LabelSelector",
    "MemoryPart",
    "MemoryStatus",
    "ModelSpec",
    "ModelStatus",
    "NotCovered",
    "ObjectMeta",
    "PolicyInForce",
    "PurgePhase",
    "ReceiptSummary",
    "Resource",
    "ResourcesSpec",
    "RetentionClassSpec",
    "RetentionSpec",
    "RolloutSpec",
    "ScalingSpec",
    "SecretKeyRef",
    "Tenant",
    "TenantSpec",
    "TenantStatus",
    "Toleration",
    "parse_cache_policy",
    "parse_cache_purge",
    "parse_inference_service",
    "parse_tenant",
]
