"""The arithmetic of receipts: honest removals add up, whatever came before; others never do."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.admin import PurgeOrder
from fleetward_api.chain_log import ChainHead
from fleetward_api.receipt import Receipt, receipt_faults
from fleetward_api.scope import Scope
from fleetward_engine.admin.removal import (
    Findings,
    Removal,
    Witness,
    build_receipt,
    drop,
    look_again,
)
from fleetward_engine.outputs import NOTHING_OVERWRITTEN, Overwritten, PurgeCounts, ScopeCounts

SCOPE = Scope(tenant="a")
small = st.integers(0, 50)


class Books:
    """An engine reduced to one scope's books: entries below and above the floor."""

    def __init__(self, *, below: int, above: int, gone: int) -> None:
        self.below, self.above, self.gone = below, above, gone
        self.removed = 0
        self.inserted = below + above + gone
        self.works = True
        self.overwrites = True
        self.dirty = self.host_dirty = 0
        self.governance = self

    def purge(self, _scope: Scope, _floor: int, *, scrub: bool) -> PurgeCounts:
        counts = ScopeCounts(
            inserted=self.inserted,
            evicted_pool=self.gone,
            evicted_quota=0,
            evicted_corrupt=0,
            expired=0,
            removed=self.removed,
            moved=0,
            resident=self.below + self.above,
        )
        taken = self.below if self.works else 0
        self.below -= taken
        self.dirty += 0 if self.overwrites else taken
        self.removed += taken
        keys = tuple(bytes([number]) for number in range(taken))
        return PurgeCounts(
            index_entries=taken,
            overwritten=NOTHING_OVERWRITTEN,
            blocks_in_use=0,
            counts=counts,
            removed_keys=keys,
        )

    def recount(self, _scope: Scope, _floor: int) -> int:
        return self.below

    block_bytes = 1024
    host_slot_bytes = 1040

    def residue(self, _scope: Scope, _floor: int) -> int:
        return self.dirty + self.host_dirty

    def host_residue(self, _scope: Scope, _floor: int) -> int:
        return self.host_dirty

    def probe(self, _keys: tuple[bytes, ...]) -> int:
        return 0


def receipt(removal: Removal, findings: Findings) -> Receipt:
    order = PurgeOrder(
        purge_uid="u", scope=SCOPE.to_wire(), scope_digest="d" * 64, floor=1, deadline_ms=1
    )
    witness = Witness(
        pod_uid="p", key_id="ed25519:" + "0" * 32, floor=1, finished=0, aborted=0,
        before=ChainHead(sequence=1, digest="sha256:" + "1" * 64),
        after=ChainHead(sequence=2, digest="sha256:" + "2" * 64),
        started_at=0, finished_at=1, versions={},
    )  # fmt: skip
    return build_receipt(order, removal, findings, witness)


def receipt_of(books: Books) -> Receipt:
    engine: Any = books
    return receipt(drop(engine, SCOPE, 1), found(books))


def found(books: Books, keys: tuple[bytes, ...] = (b"k",) * 50, *, scrub: bool = True) -> Findings:
    engine: Any = books
    return look_again(engine, SCOPE, 1, keys=keys, scrub=scrub)


@given(below=small, above=small, gone=small, more=small)
def test_an_honest_removal_adds_up_also_in_two_passes(
    below: int, above: int, gone: int, more: int
) -> None:
    books = Books(below=below, above=above, gone=gone)
    engine: Any = books
    first = drop(engine, SCOPE, 1)
    assert receipt_faults(receipt(first, found(books, first.keys))) == []
    assert (first.entries, len(first.keys)) == (below, below)
    books.below += more
    books.inserted += more
    whole = first.then(drop(engine, SCOPE, 1))
    assert whole.entries == below + more
    assert receipt_faults(receipt(whole, found(books, whole.keys))) == []
    assert receipt_faults(receipt_of(books)) == []


@given(below=st.integers(1, 50), above=small, gone=small)
def test_a_removal_that_is_switched_off_never_adds_up(below: int, above: int, gone: int) -> None:
    books = Books(below=below, above=above, gone=gone)
    books.works = False
    faults = receipt_faults(receipt_of(books))
    assert any("recount" in fault for fault in faults)
    assert any("inserted minus evicted" in fault for fault in faults)


@given(below=st.integers(1, 50), lost=st.integers(1, 50))
def test_entries_that_left_without_being_counted_are_reported(below: int, lost: int) -> None:
    books = Books(below=below, above=0, gone=0)
    books.inserted += lost
    assert receipt_faults(receipt_of(books))


def test_bytes_that_were_not_overwritten_are_reported() -> None:
    books = Books(below=3, above=0, gone=0)
    books.overwrites = False
    assert receipt_faults(receipt_of(books)) == [
        "a recount still found 3 entries of the scope",
    ]


def test_bytes_that_were_not_to_be_overwritten_are_said_to_be_left() -> None:
    books = Books(below=3, above=2, gone=1)
    books.overwrites = False
    engine: Any = books
    removal = drop(engine, SCOPE, 1)
    made = receipt(removal, found(books, removal.keys, scrub=False))
    assert receipt_faults(made) == []
    device = next(tier for tier in made.tiers if tier.tier == "device")
    assert (device.blocks, device.bytes, device.method) == (3, 3 * 1024, "dropped")


def test_host_memory_is_a_tier_of_its_own_in_a_receipt() -> None:
    books = Books(below=3, above=0, gone=0)
    engine: Any = books
    done = Overwritten(blocks=2, bytes=2048, host_blocks=1, host_bytes=1040)
    removal = drop(engine, SCOPE, 1).overwrote(done)
    made = receipt(removal, found(books, removal.keys))
    assert receipt_faults(made) == []
    assert [(tier.tier, tier.blocks, tier.bytes, tier.method) for tier in made.tiers] == [
        ("index", 3, 0, "dropped"),
        ("device", 2, 2048, "overwritten"),
        ("host", 1, 1040, "overwritten"),
    ]
    assert made.kv_blocks == 3


def test_what_is_left_in_host_memory_is_told_or_reported() -> None:
    books = Books(below=3, above=0, gone=0)
    engine: Any = books
    removal = drop(engine, SCOPE, 1)
    books.host_dirty = 2
    assert receipt_faults(receipt(removal, found(books, removal.keys))) == [
        "a recount still found 2 entries of the scope",
    ]
    made = receipt(removal, found(books, removal.keys, scrub=False))
    assert receipt_faults(made) == []
    host = next(tier for tier in made.tiers if tier.tier == "host")
    assert (host.blocks, host.bytes, host.method) == (2, 2 * 1040, "dropped")
