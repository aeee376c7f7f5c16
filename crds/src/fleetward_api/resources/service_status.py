"""What the operator says about an InferenceService."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fleetward_api.resources.base import ApiModel
from fleetward_api.resources.condition import Conditions
from fleetward_api.resources.lists import Atomic
from fleetward_api.resources.scalars import BigCount, Count, MessageText, Moment

_Text = Annotated[str, Field(max_length=512)]


class ModelStatus(ApiModel):
    """What the engines loaded."""

    digest: _Text | None = None
    """SHA-256 of the weights file."""
    tokenizer_digest: _Text | None = None
    """SHA-256 of the tokenizer."""
    chat_template_digest: _Text | None = None
    """SHA-256 of the chat template."""
    kv_layout: _Text | None = None
    """Number type, block size and layout of the KV cache, as it enters the cache key."""


class MemoryPart(ApiModel):
    """A use of memory."""

    name: _Text
    """Which, see docs/models.md."""
    bytes: BigCount
    """Its size."""


class MemoryStatus(ApiModel):
    """What a replica's memory is for: the accelerator's or, without one, the pod's."""

    available_bytes: BigCount
    """What there is."""
    parts: Annotated[tuple[MemoryPart, ...], Field(max_length=16), Atomic()] = ()
    """Its uses; the rest is left alone."""


class EngineStatus(ApiModel):
    """The engine that runs."""

    image: _Text | None = None
    """Container image."""
    version: _Text | None = None
    """Version the engine reports."""
    runner: _Text | None = None
    """Torch, or Simulated: answers of a simulated engine mean nothing."""


class PolicyInForce(ApiModel):
    """The cache policy in force."""

    name: _Text | None = None
    """Name of the CachePolicy; absent when the defaults apply."""
    generation: BigCount | None = None
    """Its metadata.generation that the bundle was made from."""
    bundle_generation: BigCount | None = None
    """Generation of the bundle, which only grows."""
    acked_replicas: Count | None = None
    """Replicas that have this bundle in force."""


class KvHolding(ApiModel):
    """What one tenant has cached under one retention class, in all replicas together."""

    tenant: _Text
    """The tenant."""
    retention_class: _Text = ""
    """Its retention class; empty for the policy's own times."""
    blocks: BigCount = 0
    """KV blocks on the device that the tenant's next request could find."""
    bytes: BigCount = 0
    """Their size in bytes."""
    host_blocks: BigCount | None = None
    """KV blocks that left the device and wait in host memory, encrypted where the policy says so;
    absent where there are none."""
    host_bytes: BigCount | None = None
    """Their size in bytes."""
    hits: BigCount = 0
    """How often a block was found, on the device or in host memory, since the replicas started."""
    oldest: Moment | None = None
    """When the oldest of these blocks was made."""


class KvCacheStatus(ApiModel):
    """Who has how much cached, as of observedAt."""

    observed_at: Moment
    """When the replicas were asked. Told anew when a tenant comes or goes, or its part of the pool
    moves by ten points, and at most every 30 seconds."""
    total_blocks: BigCount = 0
    """KV blocks of all replicas' devices together."""
    total_host_blocks: BigCount | None = None
    """KV blocks that all replicas' host memory may hold; absent without that tier."""
    holdings: Annotated[tuple[KvHolding, ...], Field(max_length=64), Atomic()] = ()
    """The largest holdings."""
    other_blocks: BigCount = 0
    """KV blocks of holdings beyond these, in all tiers."""


class InferenceServiceStatus(ApiModel):
    """The state of a service as the operator last saw it."""

    message: MessageText | None = None
    """The state in one sentence."""
    observed_generation: BigCount | None = None
    """metadata.generation that this status speaks of."""
    replicas: Count = 0
    """Pods that exist; the scale subresource's path."""
    ready_replicas: Count = 0
    """Pods that take requests."""
    replica_summary: _Text | None = None
    """Ready and wanted replicas as printed by kubectl, for example 1/2."""
    selector: Annotated[str, Field(max_length=1024)] | None = None
    """Label selector of the pods in text form; the scale subresource's path."""
    url: Annotated[str, Field(max_length=1024)] | None = None
    """Base URL of the gateway."""
    model: ModelStatus | None = None
    """What the engines loaded."""
    memory: MemoryStatus | None = None
    """What a replica's memory is for."""
    engine: EngineStatus | None = None
    """The engine that runs."""
    cache_policy: PolicyInForce | None = None
    """The cache policy in force."""
    kv_cache: KvCacheStatus | None = None
    """Who has how much cached; absent while nobody has anything."""
    isolation_subject: _Text | None = None
    """Digest of the rules and the engines that IsolationVerified proved; absent without a proof."""
    conditions: Conditions = ()
    """The conditions of the service; docs/conditions.md explains types and reasons."""
