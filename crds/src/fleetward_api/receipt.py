"""The receipt: a member's signed word on what it removed for one purge.

It names the scope by keyed digest only. Order rests on sequence numbers; times are for people.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from fleetward_api.canonical import Count, Digest, HexDigest, Name, WireModel
from fleetward_api.signed import KeyId

RECEIPT_DOMAIN: Final = "receipt"
MAX_TIERS: Final = 16
KV_TIERS: Final = frozenset({"device", "host"})
"""Tiers that hold KV blocks; an index lists the same blocks once more."""


class TierCounts(WireModel):
    """What was removed from one tier, and how.

    Attributes:
        tier: `index`, `device`, `host`, `router-index`, `bodies`, …
        blocks: entries or blocks removed. bytes: bytes they held.
        method: `dropped` (out of reach; the bytes stay until they are used again), `overwritten`,
            `key-destroyed`, or `none` where nothing was.
    """

    tier: Annotated[str, Field(min_length=1, max_length=64)]
    blocks: Count = 0
    bytes: Count = 0
    method: Annotated[str, Field(min_length=1, max_length=64)] = "none"


class Receipt(WireModel):
    """What a member did for one purge, and what it found when it looked again.

    Attributes:
        purge_uid: uid of the `CachePurge`. scope_digest: `scope.scope_digest` of what was purged.
        pod_uid: the member. key_id: its receipt key.
        floor: the scope's floor that was in force when it removed.
        tiers: what was removed, per tier.
        in_flight_finished, in_flight_aborted: requests of the scope that ran when the fence fell.
        chain_before, chain_after: heads of the member's own log around the removal.
        sequence_before, sequence_after: their numbers.
        inserted, evicted: index entries of the scope counted in and out since the member started,
            before this purge. removed: entries that this purge took out.
        probes, probe_hits: removed keys looked up again, and how many were still found.
        recount: entries of the scope that a full scan found afterwards.
        started_at, finished_at: milliseconds since the epoch.
        versions: software versions, by name.
    """

    purge_uid: Name
    scope_digest: HexDigest
    pod_uid: Name
    key_id: KeyId
    floor: Count
    tiers: Annotated[tuple[TierCounts, ...], Field(max_length=MAX_TIERS)] = ()
    in_flight_finished: Count = 0
    in_flight_aborted: Count = 0
    chain_before: Digest
    chain_after: Digest
    sequence_before: Count
    sequence_after: Count
    inserted: Count = 0
    evicted: Count = 0
    removed: Count = 0
    probes: Count = 0
    probe_hits: Count = 0
    recount: Count = 0
    started_at: Count
    finished_at: Count
    versions: dict[Name, Name] = Field(default_factory=dict, max_length=MAX_TIERS)

    @property
    def kv_blocks(self) -> int:
        """KV blocks removed, each counted where its bytes lay."""
        return sum(tier.blocks for tier in self.tiers if tier.tier in KV_TIERS)


def receipt_faults(receipt: Receipt) -> list[str]:
    """Return everything in a receipt that does not add up; empty when it shows a full removal.

    A fault makes the purge `Incomplete`: it is reported, never hidden.
    """
    faults = [*_count_faults(receipt), *_chain_faults(receipt)]
    names = [tier.tier for tier in receipt.tiers]
    faults += [
        f"tier {name} is counted twice" for name in sorted(set(names)) if names.count(name) > 1
    ]
    for tier in receipt.tiers:
        if tier.tier == "index" and tier.blocks != receipt.removed:
            faults.append(f"the index lost {tier.blocks} entries, not {receipt.removed}")
        if tier.blocks and tier.method == "none":
            faults.append(f"tier {tier.tier} names no method for {tier.blocks} blocks")
        if tier.bytes and not tier.blocks:
            faults.append(f"tier {tier.tier} counts {tier.bytes} bytes in no block")
    return faults


def _count_faults(receipt: Receipt) -> list[str]:
    faults = []
    held = receipt.inserted - receipt.evicted
    if held != receipt.removed:
        faults.append(f"inserted minus evicted is {held}, but {receipt.removed} were removed")
    if receipt.probe_hits:
        faults.append(f"{receipt.probe_hits} of {receipt.probes} probes still hit")
    if receipt.probe_hits > receipt.probes:
        faults.append(f"{receipt.probe_hits} probe hits out of {receipt.probes} probes")
    if receipt.probes < receipt.removed:
        faults.append(f"{receipt.removed} keys were removed and {receipt.probes} were probed")
    if receipt.recount:
        faults.append(f"a recount still found {receipt.recount} entries of the scope")
    return faults


def _chain_faults(receipt: Receipt) -> list[str]:
    if receipt.sequence_after <= receipt.sequence_before:
        return ["the removal is not in the member's log: its sequence number did not grow"]
    if receipt.chain_after == receipt.chain_before:
        return ["the removal is not in the member's log: its head did not change"]
    return []
