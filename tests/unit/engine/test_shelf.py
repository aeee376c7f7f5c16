"""Since when a tenant holds what it has cached, however its blocks came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.owner import Owner
from fleetward_engine.cache_entry import Entry
from fleetward_engine.host_tier.rules import HostRules
from fleetward_engine.prefix_index import PrefixIndex
from fleetward_engine.shelf import Shelf
from tests.support.engine_core import make_bench, make_request


def entry_of(key: int, created: float) -> Entry:
    name = key.to_bytes(32, "big")
    return Entry(key=name, block=key, owner=Owner.of("a"), created=created, last_used=created)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), max_size=300))
def test_the_oldest_is_told_whatever_the_order_they_came_and_left_in(
    events: list[tuple[int, int]],
) -> None:
    shelf = Shelf()
    for key, created in events:
        entry = entry_of(key, float(created))
        if shelf.entries.pop(entry.key, None) is None:
            shelf.add(entry)
        made = [one.created for one in shelf.entries.values()]
        assert shelf.oldest() == min(made, default=None)
        assert len(shelf._ages) <= 64 + 2 * 10


def test_what_comes_back_from_host_memory_is_as_old_as_it_was() -> None:
    bench = make_bench(num_blocks=14, host_kv_cache_memory_bytes=1 << 20)
    rules = HostRules(size=1 << 20, classes=frozenset({""}))
    bench.engine.governance.set_host_rules(rules)
    for number, token in enumerate([1, 2, 1, 3, 4, 5, 1, 6]):
        bench.run(make_request(f"{number}", [token] * 17))
        bench.clock.advance(10)
        for index in (bench.engine._kv_cache.index, bench.engine._kv_cache.host.index):
            assert told(index) == min((one.created for one in index.entries()), default=None)
    assert bench.engine.stats().host.counters.loads > 0


def told(index: PrefixIndex) -> float | None:
    return next((holding.oldest for holding in index.holdings()), None)
