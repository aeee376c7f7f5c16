"""What a purge did inside the engine, and the receipt that says so."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fleetward_api.admin import PurgeOrder
from fleetward_api.chain_log import ChainHead
from fleetward_api.receipt import Receipt, TierCounts
from fleetward_api.scope import Scope
from fleetward_engine.engine import Engine
from fleetward_engine.outputs import NOTHING_OVERWRITTEN, Overwritten


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What was taken out, in one pass or in several added up.

    ``inserted`` and ``departed`` are the scope's books before: index entries below the floor ever
    counted in, and those counted out by eviction, expiry or an earlier purge.
    """

    inserted: int = 0
    departed: int = 0
    keys: tuple[bytes, ...] = ()
    entries: int = 0
    overwritten: Overwritten = NOTHING_OVERWRITTEN

    def then(self, later: Removal) -> Removal:
        """This pass and a later one as one.

        With the books as they were before both, and what they say is new since counted in.
        """
        return Removal(
            inserted=self.inserted + later.inserted - later.departed,
            departed=self.departed,
            keys=self.keys + later.keys,
            entries=self.entries + later.entries,
            overwritten=self.overwritten + later.overwritten,
        )

    def overwrote(self, more: Overwritten) -> Removal:
        """With more blocks overwritten."""
        return replace(self, overwritten=self.overwritten + more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was found when looking again.

    ``probe_hits`` of ``probes`` removed keys went through the lookup that requests use and were
    still found. ``recount`` is what full scans found: index entries below the floor and, where
    bytes were to be overwritten, blocks that still carry them. Where they were not, such blocks
    are ``left``, with their bytes; ``host_left`` of them in host memory.
    """

    probes: int = 0
    probe_hits: int = 0
    recount: int = 0
    left: int = 0
    left_bytes: int = 0
    host_left: int = 0
    host_left_bytes: int = 0


def drop(engine: Engine, scope: Scope, floor: int) -> Removal:
    """Take the scope's index entries from below the floor out, all between two steps.

    Entries at or above the floor (of requests authorised after it) stay and are not counted.
    """
    purged = engine.governance.purge(scope, floor, scrub=False)
    counts = purged.counts
    above = counts.resident - purged.index_entries - engine.governance.recount(scope, floor)
    return Removal(
        inserted=counts.inserted - above,
        departed=counts.departed,
        keys=purged.removed_keys,
        entries=purged.index_entries,
    )


def look_again(
    engine: Engine, scope: Scope, floor: int, *, keys: tuple[bytes, ...], scrub: bool
) -> Findings:
    """Probe the removed keys, scan the index and the owners of all blocks."""
    residue = engine.governance.residue(scope, floor)
    host = 0 if scrub else engine.governance.host_residue(scope, floor)
    left = 0 if scrub else residue - host
    return Findings(
        probes=len(keys),
        probe_hits=engine.governance.probe(keys),
        recount=engine.governance.recount(scope, floor) + residue - left - host,
        left=left,
        left_bytes=left * engine.block_bytes,
        host_left=host,
        host_left_bytes=host * engine.host_slot_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """The facts around a removal that its receipt carries. Times in epoch milliseconds."""

    pod_uid: str
    key_id: str
    floor: int
    finished: int
    aborted: int
    before: ChainHead
    after: ChainHead
    started_at: int
    finished_at: int
    versions: dict[str, str]


def build_receipt(
    order: PurgeOrder, removal: Removal, findings: Findings, witness: Witness
) -> Receipt:
    """The receipt, yet to be signed."""
    return Receipt(
        purge_uid=order.purge_uid,
        scope_digest=order.scope_digest,
        pod_uid=witness.pod_uid,
        key_id=witness.key_id,
        floor=witness.floor,
        tiers=_tiers(removal, findings),
        in_flight_finished=witness.finished,
        in_flight_aborted=witness.aborted,
        chain_before=witness.before.digest,
        chain_after=witness.after.digest,
        sequence_before=witness.before.sequence,
        sequence_after=witness.after.sequence,
        inserted=removal.inserted,
        evicted=removal.departed,
        removed=removal.entries,
        probes=findings.probes,
        probe_hits=findings.probe_hits,
        recount=findings.recount,
        started_at=witness.started_at,
        finished_at=witness.finished_at,
        versions=witness.versions,
    )


def _tiers(removal: Removal, findings: Findings) -> tuple[TierCounts, ...]:
    done, left = removal.overwritten, findings
    index = _tier("index", removal.entries, 0, method="dropped")
    # One left block is enough to say "dropped": its bytes stay until it is used again.
    if left.left:
        device = _tier("device", left.left, left.left_bytes, method="dropped")
    else:
        device = _tier("device", done.blocks, done.bytes, method="overwritten")
    if left.host_left:
        host = _tier("host", left.host_left, left.host_left_bytes, method="dropped")
    else:
        host = _tier("host", done.host_blocks, done.host_bytes, method="overwritten")
    # Nothing is said of a tier that had nothing, so that older readers find what they know.
    return (index, device, host) if host.blocks else (index, device)


def _tier(tier: str, blocks: int, size: int, *, method: str) -> TierCounts:
    return TierCounts(tier=tier, blocks=blocks, bytes=size, method=method if blocks else "none")
