"""Lookups, deadlines and per-scope books of the prefix index."""

from __future__ import annotations

import pytest

from fleetward_api.owner import Owner
from fleetward_engine.cache_entry import Entry
from fleetward_engine.outputs import KvHolding, ScopeCounts
from fleetward_engine.prefix_index import PrefixIndex
from tests.support.engine_core import ACME, BETA


def entry(  # type: ignore[no-untyped-def]
    block: int, *, scope=ACME, floor: int = 0, idle: float = 1e9, longest: float = 1e9, **more
):
    return Entry(
        key=bytes([block]),
        block=block,
        owner=more.pop("owner", None) or Owner.of(scope.tenant, floor),
        created=more.pop("created", 0.0),
        last_used=0.0,
        idle_ttl=idle,
        max_ttl=longest,
        **more,
    )


def test_finds_the_longest_known_prefix_only() -> None:
    index = PrefixIndex()
    for block in (1, 2, 4):
        index.insert(entry(block))
    found = index.lookup([bytes([b]) for b in (1, 2, 3, 4)], now=1.0)
    assert [e.block for e in found] == [1, 2]


def test_an_entry_is_found_until_its_deadline_and_not_at_it() -> None:
    index = PrefixIndex()
    index.insert(entry(1, longest=10.0))
    assert len(index.lookup([b"\1"], now=9.999)) == 1
    assert index.lookup([b"\1"], now=10.0) == []
    assert [e.block for e in index.pop_expired(10.0)] == [1]
    assert b"\1" not in index


def test_use_extends_idle_time_but_never_the_longest_time() -> None:
    index = PrefixIndex()
    index.insert(entry(1, idle=5.0, longest=8.0))
    index.touch(index.lookup([b"\1"], now=4.0), now=4.0)
    assert len(index.lookup([b"\1"], now=7.9)) == 1
    index.touch(index.lookup([b"\1"], now=7.9), now=7.9)
    assert index.lookup([b"\1"], now=8.0) == []


def test_a_lookup_alone_is_no_use() -> None:
    index = PrefixIndex()
    index.insert(entry(1, idle=5.0))
    index.lookup([b"\1"], now=4.0)
    assert index.lookup([b"\1"], now=5.0) == []


def test_a_clock_that_jumps_back_shortens_nothing() -> None:
    index = PrefixIndex()
    index.insert(entry(1, idle=5.0))
    index.touch(index.lookup([b"\1"], now=4.0), now=4.0)
    index.touch(index.lookup([b"\1"], now=1.0), now=1.0)
    assert len(index.lookup([b"\1"], now=8.0)) == 1


def test_removes_a_scope_below_the_floor_and_nothing_else() -> None:
    index = PrefixIndex()
    for one in (entry(1), entry(2, floor=1), entry(3, scope=BETA)):
        index.insert(one)
    assert index.recount(ACME, 1) == 1
    assert [e.block for e in index.remove_below(ACME, 1)] == [1]
    assert index.recount(ACME, 1) == 0
    assert b"\2" in index
    assert b"\3" in index
    index.check_integrity()


def test_books_tell_why_each_entry_left() -> None:
    index = PrefixIndex()
    for block in (1, 2, 3, 4, 5):
        index.insert(entry(block, longest=float(block)))
    index.pop_expired(1.0)
    index.remove(index.lookup([b"\2"], now=1.0)[0], "quota")
    index.remove(index.lookup([b"\3"], now=1.0)[0], "removed")
    index.remove(index.lookup([b"\5"], now=1.0)[0], "corrupt")
    assert index.counts(ACME) == ScopeCounts(
        inserted=5, evicted_pool=0, evicted_quota=1, evicted_corrupt=1, expired=1, removed=1,
        moved=0, resident=1,
    )  # fmt: skip
    assert index.counts(ACME).evicted == 2
    assert index.counts(BETA).inserted == 0
    assert list(index.scopes()) == [ACME]


def test_stricter_limits_reach_entries_that_exist_and_looser_ones_do_not() -> None:
    index = PrefixIndex()
    index.insert(entry(1, longest=100.0))
    index.insert(entry(2))
    index.limit_ttls(idle_ttl=float("inf"), max_ttl=10.0)
    index.limit_ttls(idle_ttl=float("inf"), max_ttl=50.0)
    assert index.pop_expired(9.9) == []
    assert len(index.pop_expired(10.0)) == 2
    index.check_integrity()


def test_a_key_or_block_enters_once() -> None:
    index = PrefixIndex()
    index.insert(entry(1))
    with pytest.raises(RuntimeError, match="already"):
        index.insert(entry(1))


def tree(index: PrefixIndex) -> dict[int, Entry]:
    """1 goes on as 2 and 3, and 3 as 4; 5 stands alone."""
    found: dict[int, Entry] = {}
    for block, parent in ((1, 0), (2, 1), (3, 1), (4, 3), (5, 0)):
        found[block] = entry(block, parent=found.get(parent), longest=10.0 * block)
        index.insert(found[block])
    return found


def test_what_can_be_found_only_through_a_removed_entry_goes_before_it() -> None:
    index = PrefixIndex()
    entries = tree(index)
    assert [e.block for e in index.remove(entries[3], "pool")] == [4, 3]
    assert not entries[1].is_leaf
    assert [e.block for e in index.remove(entries[1], "pool")] == [2, 1]
    assert [e.block for e in index.remove(entries[5], "pool")] == [5]
    assert index.counts(ACME).evicted_pool == 5
    index.check_integrity()


@pytest.mark.parametrize("order", [(2, 3), (3, 2)])
def test_siblings_leave_in_any_order(order: tuple[int, int]) -> None:
    index = PrefixIndex()
    entries = tree(index)
    index.remove(entries[4], "pool")
    for block in order:
        assert not entries[1].is_leaf
        assert [e.block for e in index.remove(entries[block], "pool")] == [block]
    assert entries[1].is_leaf


def test_nothing_outlives_the_entry_it_is_found_through() -> None:
    index = PrefixIndex()
    entries = tree(index)
    left = [e.block for e in index.pop_expired(10.0)]
    assert sorted(left) == [1, 2, 3, 4]
    assert left.index(4) < left.index(3) < left.index(1) > left.index(2)
    assert [e.block for e in index.pop_expired(50.0)] == [5]
    with pytest.raises(RuntimeError, match="parent"):
        index.insert(entry(6, parent=entries[1]))
    index.check_integrity()


def test_integrity_check_finds_an_orphan() -> None:
    index = PrefixIndex()
    entries = tree(index)
    index.check_integrity()
    entries[2].parent = entry(9)
    with pytest.raises(AssertionError, match="parent"):
        index.check_integrity()


def test_holdings_are_kept_by_scope_and_class() -> None:
    index = PrefixIndex()
    index.insert(entry(1, created=1.0))
    index.insert(entry(2, created=2.0))
    index.insert(entry(3, created=3.0, retention_class="short"))
    index.insert(entry(4, created=4.0, scope=BETA))
    index.hit(index.lookup([b"\1", b"\2"], now=5.0), now=5.0)
    index.remove(index.lookup([b"\1"], now=5.0)[0], "pool")
    index.remove(index.lookup([b"\4"], now=5.0)[0], "pool")
    assert index.holdings() == [
        KvHolding(scope=ACME, retention_class="", blocks=1, hits=2, oldest=2.0),
        KvHolding(scope=ACME, retention_class="short", blocks=1, hits=0, oldest=3.0),
        KvHolding(scope=BETA, retention_class="", blocks=0, hits=0, oldest=None),
    ]
