"""Lookups, deadlines and per-scope books of the prefix index."""

from __future__ import annotations

import pytest

from fleetward_engine.block_pool import Owner
from fleetward_engine.outputs import ScopeCounts
from fleetward_engine.prefix_index import Entry, PrefixIndex
from tests.support.engine_core import ACME, BETA


def entry(block: int, *, scope=ACME, floor: int = 0, idle: float = 1e9, longest: float = 1e9):  # type: ignore[no-untyped-def]
    return Entry(
        key=bytes([block]),
        block=block,
        owner=Owner(scope, floor),
        created=0.0,
        last_used=0.0,
        idle_ttl=idle,
        max_ttl=longest,
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
    for block in (1, 2, 3, 4):
        index.insert(entry(block, longest=float(block)))
    index.pop_expired(1.0)
    index.remove(index.lookup([b"\2"], now=1.0)[0], "evicted")
    index.remove(index.lookup([b"\3"], now=1.0)[0], "removed")
    assert index.counts(ACME) == ScopeCounts(
        inserted=4, evicted=1, expired=1, removed=1, resident=1
    )
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
