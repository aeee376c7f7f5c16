"""What the engine hands back: tokens and text per step, and counts for graphs and receipts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

from fleetward_api.scope import Scope

BlockKey = bytes
FinishReason = Literal["stop", "length", "abort", "error", "deadline"]
StepPhase = Literal["schedule", "run", "update"]
"""Choosing and reserving a step's work, the model's part, and handing out what it brought."""
AdmissionReason = Literal["predicted_wait", "kv_headroom", "deadline"]
"""Why a request was not taken in: too long a wait, KV promised to others, or it would be late."""


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities at one position, before temperature and filters.

    `top` holds the most likely (token id, log-probability) pairs, best first.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutput:
    """What one step added to one request.

    `text_delta` only ever appends; the deltas of a request joined are its whole text, without any
    stop string. `cached_tokens` counts prompt tokens taken from the cache at first admission.
    `error` is set only with `finish_reason` "error"; `refused` says that it is the caller's own (a
    grammar that came to its limits), not the engine's. `queue_seconds` is how long the request has
    waited so far, also after it was preempted. `prompt_logprobs` come with the first token: of each
    token of the prompt but the first, which nothing foretells.
    """

    request_id: str
    new_token_ids: tuple[int, ...]
    text_delta: str
    finish_reason: FinishReason | None
    cached_tokens: int
    prompt_tokens: int
    completion_tokens: int
    queue_seconds: float = 0.0
    error: str | None = None
    refused: bool = False
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeCounts:
    """What happened to one scope's index entries: to a tenant's, since the engine started.

    Of a finer scope only those owners count that have entries now; so what is kept is bounded by
    what is cached, however many users and tags come by. `inserted - departed == resident` always
    holds; a purge whose counts break it is reported as incomplete. `moved` are those of host memory
    that the device has again.
    """

    inserted: int
    evicted_pool: int
    evicted_quota: int
    evicted_corrupt: int
    expired: int
    removed: int
    moved: int
    resident: int

    def __add__(self, other: ScopeCounts) -> ScopeCounts:
        """The books of two tiers together: what was in both came in and left twice."""
        sums = {
            part.name: getattr(self, part.name) + getattr(other, part.name)
            for part in fields(ScopeCounts)
        }
        return ScopeCounts(**sums)

    @property
    def departed(self) -> int:
        """Entries that left, for any reason."""
        return self.evicted + self.expired + self.removed + self.moved

    @property
    def evicted(self) -> int:
        """Entries that left before their time: for room, or because their bytes had changed."""
        return self.evicted_pool + self.evicted_quota + self.evicted_corrupt


@dataclass(frozen=True, slots=True, kw_only=True)
class KvHolding:
    """What one tenant has cached under one retention class; `scope` is the whole tenant.

    `blocks` can be found now; `hits` counts how often one was, since the engine started; `oldest`
    is when the oldest of them was made (monotonic seconds), None where there is none.
    """

    scope: Scope
    retention_class: str
    blocks: int
    hits: int
    oldest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantShare:
    """Blocks that one tenant holds: those in use, and those that are only cached."""

    in_use: int
    cached: int


@dataclass(slots=True, kw_only=True)
class HostCounters:
    """What came to host memory and went, in blocks since start.

    `refused_loads` were found and would have been slower to load than to compute again; `damaged`
    were not what had been stored, and never used. `load_seconds` is the time of all loads.
    """

    offloads: int = 0
    loads: int = 0
    refused_loads: int = 0
    damaged: int = 0
    load_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStats:
    """The host tier at one moment: `slots` of `slot_bytes` that it may fill, `blocks` in them."""

    slots: int
    slot_bytes: int
    blocks: int
    counters: HostCounters
    shares: Mapping[str, TenantShare]
    holdings: tuple[KvHolding, ...]
    scope_counts: Mapping[Scope, ScopeCounts]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicBlocks:
    """Blocks of declared public prefixes: set apart for them, cached, declared without room."""

    reserved: int
    cached: int
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Gauges and counters at one moment. `last_progress` is in monotonic seconds.

    `requests` are those whose end was not handed out yet, `kv_block_references` counts each user of
    each block: both are 0 when nothing runs. `kv_blocks_max_share` is the most that one tenant may
    hold, `kv_blocks_guaranteed` what each one's others can't take; `shares` is by tenant.
    `kv_corruptions` are cached blocks whose bytes had changed when a request came back to them.
    """

    requests: int
    running: int
    waiting: int
    kv_block_references: int
    kv_blocks_total: int
    kv_blocks_used: int
    cached_blocks: int
    prefix_query_tokens: int
    prefix_hit_tokens: int
    prompt_tokens: int
    generation_tokens: int
    preemptions: int
    yields: int
    passes: int
    failed_logits: int
    admission_refusals: Mapping[AdmissionReason, int]
    kv_corruptions: int
    steps: int
    step_seconds: Mapping[StepPhase, float]
    last_progress: float
    kv_block_bytes: int
    kv_blocks_max_share: int
    kv_blocks_guaranteed: int
    shares: Mapping[str, TenantShare]
    holdings: tuple[KvHolding, ...]
    scope_counts: Mapping[Scope, ScopeCounts]
    host: HostStats
    public_blocks: PublicBlocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwritten:
    """Blocks of a scope that were overwritten, and their bytes, in each tier."""

    blocks: int = 0
    bytes: int = 0
    host_blocks: int = 0
    host_bytes: int = 0

    def __add__(self, other: Overwritten) -> Overwritten:
        return Overwritten(
            blocks=self.blocks + other.blocks,
            bytes=self.bytes + other.bytes,
            host_blocks=self.host_blocks + other.host_blocks,
            host_bytes=self.host_bytes + other.host_bytes,
        )

    def __bool__(self) -> bool:
        return bool(self.blocks or self.host_blocks)


NOTHING_OVERWRITTEN = Overwritten()


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceResult:
    """In-flight requests of the scope, from below the floor, that will finish or were aborted."""

    finishing: int
    aborted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeCounts:
    """What a purge removed. `removed_keys` are for `Governance.probe`, which must find none.

    `overwritten` was so now (nothing without scrub). `blocks_in_use` still serve
    requests that were in flight at the fence; they are overwritten when those requests end, so a
    purge is only whole once `Governance.in_flight` is 0 and it is asked again.
    `counts` are the scope's own before the removal.
    """

    index_entries: int
    overwritten: Overwritten
    blocks_in_use: int
    counts: ScopeCounts
    removed_keys: tuple[BlockKey, ...]

    @property
    def inserted(self) -> int:
        """Entries of the scope ever inserted."""
        return self.counts.inserted

    @property
    def evicted(self) -> int:
        """Entries of the scope evicted for room."""
        return self.counts.evicted

    @property
    def expired(self) -> int:
        """Entries of the scope that outlived a TTL."""
        return self.counts.expired
