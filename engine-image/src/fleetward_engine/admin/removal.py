"""What a purge did inside the engine, and the receipt that says so. Pure but for `remove`."""

from __future__ import annotations

from dataclasses import dataclass

from fleetward_api.admin import PurgeOrder
from fleetward_api.chain_log import ChainHead
from fleetward_api.receipt import Receipt, TierCounts
from fleetward_api.scope import Scope
from fleetward_engine.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Counts of one pass, or of several added up.

    ``held`` is what the books said before: entries of the scope below the floor, by inserts minus
    departures. ``recount`` is what scans still found afterwards: index entries and, where bytes
    were to be overwritten, blocks that still carry them.
    """

    inserted: int = 0
    departed: int = 0
    entries: int = 0
    blocks: int = 0
    bytes: int = 0
    blocks_in_use: int = 0
    probes: int = 0
    probe_hits: int = 0
    recount: int = 0

    def then(self, later: Removal) -> Removal:
        """This pass and a later one as one: the books are the first's, the last look is last."""
        return Removal(
            inserted=later.inserted,
            departed=later.departed - self.entries,
            entries=self.entries + later.entries,
            blocks=self.blocks + later.blocks,
            bytes=self.bytes + later.bytes,
            blocks_in_use=later.blocks_in_use,
            probes=self.probes + later.probes,
            probe_hits=self.probe_hits + later.probe_hits,
            recount=later.recount,
        )


def remove(engine: Engine, scope: Scope, floor: int, *, scrub: bool) -> Removal:
    """Remove, overwrite, probe and count again, all between two steps.

    The probes go through the lookup that requests use. Entries of the scope at or above the floor
    (requests authorised after it) stay and are left out of the count.
    """
    purged = engine.purge(scope, floor, scrub=scrub)
    entries_left = engine.recount(scope, floor)
    blocks_left = engine.residue(scope, floor) if scrub else 0
    counts = purged.counts
    above = counts.resident - entries_left
    return Removal(
        inserted=counts.inserted - above,
        departed=counts.evicted + counts.expired + counts.removed - purged.index_entries,
        entries=purged.index_entries,
        blocks=purged.blocks,
        bytes=purged.bytes,
        blocks_in_use=purged.blocks_in_use,
        probes=len(purged.removed_keys),
        probe_hits=engine.probe(purged.removed_keys),
        recount=entries_left + blocks_left,
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


def build_receipt(order: PurgeOrder, removal: Removal, witness: Witness) -> Receipt:
    """The receipt, yet to be signed."""
    return Receipt(
        purge_uid=order.purge_uid,
        scope_digest=order.scope_digest,
        pod_uid=witness.pod_uid,
        key_id=witness.key_id,
        floor=witness.floor,
        tiers=(
            _tier("index", removal.entries, 0, method="dropped"),
            _tier("device", removal.blocks, removal.bytes, method="overwritten"),
        ),
        in_flight_finished=witness.finished,
        in_flight_aborted=witness.aborted,
        chain_before=witness.before.digest,
        chain_after=witness.after.digest,
        sequence_before=witness.before.sequence,
        sequence_after=witness.after.sequence,
        inserted=removal.inserted,
        evicted=removal.departed,
        removed=removal.entries,
        probes=removal.probes,
        probe_hits=removal.probe_hits,
        recount=removal.recount,
        started_at=witness.started_at,
        finished_at=witness.finished_at,
        versions=witness.versions,
    )


def _tier(tier: str, blocks: int, size: int, *, method: str) -> TierCounts:
    return TierCounts(tier=tier, blocks=blocks, bytes=size, method=method if blocks else "none")
