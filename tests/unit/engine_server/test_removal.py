"""The arithmetic of receipts: honest removals add up, whatever came before; others never do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.admin import PurgeOrder
from fleetward_api.chain_log import ChainHead
from fleetward_api.receipt import Receipt, receipt_faults
from fleetward_api.scope import Scope
from fleetward_engine.admin.removal import Removal, Witness, build_receipt, remove
from fleetward_engine.engine import Engine
from fleetward_engine.outputs import PurgeCounts, ScopeCounts

SCOPE = Scope(tenant="a")
small = st.integers(0, 50)


class Books:
    """An engine reduced to one scope's books: entries below and above the floor."""

    def __init__(self, *, below: int, above: int, gone: int) -> None:
        self.below, self.above, self.gone = below, above, gone
        self.removed = 0
        self.inserted = below + above + gone
        self.works = True

    def purge(self, _scope: Scope, _floor: int, *, scrub: bool) -> PurgeCounts:
        taken = self.below if self.works else 0
        self.below -= taken
        self.removed += taken
        counts = ScopeCounts(
            inserted=self.inserted,
            evicted=self.gone,
            expired=0,
            removed=self.removed,
            resident=self.below + self.above,
        )
        keys = tuple(bytes([number]) for number in range(taken))
        return PurgeCounts(
            index_entries=taken, blocks=taken if scrub else 0, bytes=taken * 8 if scrub else 0,
            blocks_in_use=0, counts=counts, removed_keys=keys,
        )  # fmt: skip

    def recount(self, _scope: Scope, _floor: int) -> int:
        return self.below

    def residue(self, _scope: Scope, _floor: int) -> int:
        return self.below

    def probe(self, _keys: tuple[bytes, ...]) -> int:
        return 0


def receipt(removal: Removal) -> Receipt:
    order = PurgeOrder(
        purge_uid="u", scope=SCOPE.to_wire(), scope_digest="d" * 64, floor=1, deadline_ms=1
    )
    witness = Witness(
        pod_uid="p", key_id="ed25519:" + "0" * 32, floor=1, finished=0, aborted=0,
        before=ChainHead(sequence=1, digest="sha256:" + "1" * 64),
        after=ChainHead(sequence=2, digest="sha256:" + "2" * 64),
        started_at=0, finished_at=1, versions={},
    )  # fmt: skip
    return build_receipt(order, removal, witness)


def removal_of(books: Books, *, scrub: bool = True) -> Removal:
    engine: Engine = books  # type: ignore[assignment]
    return remove(engine, SCOPE, 1, scrub=scrub)


@given(below=small, above=small, gone=small, more=small, scrub=st.booleans())
def test_an_honest_removal_adds_up_also_in_two_passes(
    below: int, above: int, gone: int, more: int, scrub: bool
) -> None:
    books = Books(below=below, above=above, gone=gone)
    first = removal_of(books, scrub=scrub)
    assert receipt_faults(receipt(first)) == []
    assert first.entries == below
    books.below += more
    books.inserted += more
    whole = first.then(removal_of(books, scrub=scrub))
    assert whole.entries == below + more
    assert receipt_faults(receipt(whole)) == []
    later = removal_of(books, scrub=scrub)
    assert (later.entries, receipt_faults(receipt(later))) == (0, [])


@given(below=st.integers(1, 50), above=small, gone=small)
def test_a_removal_that_is_switched_off_never_adds_up(below: int, above: int, gone: int) -> None:
    books = Books(below=below, above=above, gone=gone)
    books.works = False
    faults = receipt_faults(receipt(removal_of(books)))
    assert any("recount" in fault for fault in faults)
    assert any("inserted minus evicted" in fault for fault in faults)


@given(below=st.integers(1, 50), lost=st.integers(1, 50))
def test_entries_that_left_without_being_counted_are_reported(below: int, lost: int) -> None:
    books = Books(below=below, above=0, gone=0)
    books.inserted += lost
    assert receipt_faults(receipt(removal_of(books)))
