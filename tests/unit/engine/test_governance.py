"""TTL, no-store, fences and purges: each with the paired case that still hits."""

from __future__ import annotations

import pytest

from fleetward_engine.outputs import NOTHING_OVERWRITTEN
from fleetward_engine.share_rules import ShareRules
from tests.support.engine_core import ACME, BETA, Bench, make_bench, make_request

PROMPT = list(range(18))
HIT = 16


def cached(bench: Bench, name: str, **options) -> int:  # type: ignore[no-untyped-def]
    return bench.run(make_request(name, PROMPT, **options))[0].cached_tokens


def test_another_scope_misses_what_the_same_scope_hits() -> None:
    bench = make_bench()
    cached(bench, "1")
    assert cached(bench, "2", scope=BETA) == 0
    assert cached(bench, "3") == HIT


def test_max_ttl_ends_an_entry_however_often_it_is_used() -> None:
    bench = make_bench()
    cached(bench, "1", max_ttl_ms=10_000)
    for number in range(9):
        bench.clock.advance(1.0)
        assert cached(bench, f"use {number}", max_ttl_ms=10_000) == HIT
    bench.clock.advance(1.0)
    assert cached(bench, "after") == 0


def test_idle_ttl_ends_an_unused_entry_and_use_keeps_it() -> None:
    bench = make_bench()
    cached(bench, "1", idle_ttl_ms=10_000)
    bench.clock.advance(9.9)
    assert cached(bench, "2") == HIT
    bench.clock.advance(9.9)
    assert cached(bench, "3") == HIT
    bench.clock.advance(10.0)
    assert cached(bench, "4") == 0


def test_expired_blocks_are_overwritten_without_any_request() -> None:
    bench = make_bench()
    cached(bench, "1", max_ttl_ms=10_000)
    assert not bench.runner.holds_nothing(range(65))
    bench.clock.advance(10.0)
    assert bench.engine.governance.expire(bench.clock.now) == 5
    assert bench.runner.holds_nothing(range(65))


@pytest.mark.parametrize("percent", [50, 100])
def test_what_was_evicted_outlives_its_ttl_no_more_than_what_was_not(percent: int) -> None:
    bench = make_bench()
    bench.engine.governance.set_share_rules(ShareRules(max_percent=percent))
    for number in range(40):
        prompt = [30 + number] * 17
        bench.run(make_request(str(number), prompt, max_ttl_ms=10_000, max_tokens=1))
    bench.clock.advance(10.0)
    assert bench.engine.governance.expire(bench.clock.now) < 40 * 4
    assert bench.runner.holds_nothing(range(65))


def test_expiry_under_a_running_request_waits_for_it_to_end() -> None:
    bench = make_bench()
    bench.engine.add_request(make_request("1", PROMPT, max_ttl_ms=1_000, max_tokens=8))
    bench.step()
    bench.clock.advance(2.0)
    bench.step()
    assert bench.engine.stats().cached_blocks == 0
    assert cached(bench, "2", scope=BETA) == 0
    assert len(bench.tokens("1")) == 8


def test_a_stricter_policy_reaches_what_is_cached_already() -> None:
    bench = make_bench()
    cached(bench, "1")
    bench.engine.governance.limit_ttls(idle_ttl_ms=None, max_ttl_ms=5_000)
    bench.clock.advance(4.9)
    assert cached(bench, "2") == HIT
    bench.clock.advance(0.1)
    assert cached(bench, "3") == 0


def test_a_stricter_policy_reaches_what_a_request_in_flight_leaves() -> None:
    bench = make_bench()
    bench.engine.add_request(make_request("1", PROMPT, max_ttl_ms=5_000))
    bench.engine.add_request(make_request("2", PROMPT, scope=BETA))
    bench.step()
    bench.engine.governance.limit_ttls(idle_ttl_ms=None, max_ttl_ms=10_000)
    while bench.engine.has_work:
        bench.step()
    assert cached(bench, "3") == cached(bench, "4", scope=BETA) == HIT
    for seconds, left in ((5.0, 5), (5.0, 0)):
        bench.clock.advance(seconds)
        bench.engine.governance.expire(bench.clock.now)
        assert bench.engine.stats().cached_blocks == left


def test_a_prefix_is_evicted_from_its_end() -> None:
    bench = make_bench(num_blocks=8)
    cached(bench, "1")
    bench.run(make_request("2", [99] * 21, scope=BETA, max_tokens=1))
    assert cached(bench, "3") == 8


def test_no_store_leaves_nothing_and_a_storing_request_still_does() -> None:
    bench = make_bench()
    assert cached(bench, "1", store=False) == 0
    assert bench.engine.stats().cached_blocks == 0
    assert bench.runner.holds_nothing(range(65))
    assert cached(bench, "2") == 0
    assert cached(bench, "3", store=False) == HIT
    assert cached(bench, "4") == HIT


def test_no_root_reads_and_writes_no_cache() -> None:
    bench = make_bench()
    cached(bench, "1")
    assert cached(bench, "2", cached=False) == 0
    assert cached(bench, "3") == HIT


def test_a_purge_removes_and_overwrites_one_scope_and_spares_the_other() -> None:
    bench = make_bench()
    cached(bench, "1")
    cached(bench, "2", scope=BETA)
    counts = bench.engine.governance.purge(ACME, 1, scrub=True)
    assert counts.index_entries == len(counts.removed_keys) == 5
    assert counts.overwritten.blocks == 5
    assert counts.overwritten.bytes == 5 * bench.runner.block_bytes
    assert counts.blocks_in_use == 0
    assert counts.inserted - counts.evicted - counts.expired == counts.index_entries
    assert bench.engine.governance.probe(counts.removed_keys) == 0
    assert bench.engine.governance.recount(ACME, 1) == bench.engine.governance.residue(ACME, 1) == 0
    assert bench.engine.governance.recount(BETA, 1) == 5
    assert cached(bench, "3", floor=1) == 0
    assert cached(bench, "4", floor=1) == HIT
    assert cached(bench, "5", scope=BETA) == HIT


def test_probing_finds_what_was_not_removed() -> None:
    bench = make_bench()
    cached(bench, "1")
    keys = [entry.key for entry in bench.engine._kv_cache.index._entries.values()]
    assert bench.engine.governance.probe(keys) == 5


def test_without_scrub_keys_go_and_bytes_stay_counted_as_residue() -> None:
    bench = make_bench()
    cached(bench, "1")
    counts = bench.engine.governance.purge(ACME, 1, scrub=False)
    assert (counts.index_entries, counts.overwritten) == (5, NOTHING_OVERWRITTEN)
    assert bench.engine.governance.residue(ACME, 1) == 5
    assert cached(bench, "2", floor=1) == 0


def test_a_purge_of_nothing_is_all_zeros() -> None:
    counts = make_bench().engine.governance.purge(ACME, 7, scrub=True)
    assert (counts.index_entries, counts.blocks_in_use) == (0, 0)
    assert counts.overwritten == NOTHING_OVERWRITTEN


def test_old_tokens_use_and_leave_nothing_after_a_fence() -> None:
    bench = make_bench()
    cached(bench, "1")
    bench.engine.governance.fence(ACME, 1, "Finish")
    assert cached(bench, "2") == 0
    assert cached(bench, "3") == 0
    assert bench.engine.stats().scope_counts[ACME].inserted == 5
    assert cached(bench, "4", floor=1) == 0
    assert cached(bench, "5", floor=1) == HIT


def test_a_floor_never_sinks() -> None:
    bench = make_bench()
    bench.engine.governance.fence(ACME, 2, "Finish")
    bench.engine.governance.fence(ACME, 1, "Finish")
    cached(bench, "1", floor=1)
    assert cached(bench, "2", floor=1) == 0


def test_requests_in_flight_finish_uncached_and_their_bytes_go_when_they_end() -> None:
    bench = make_bench()
    bench.engine.add_request(make_request("1", PROMPT, max_tokens=12))
    bench.engine.add_request(make_request("2", PROMPT, scope=BETA, max_tokens=12))
    bench.step()
    fence = bench.engine.governance.fence(ACME, 1, "Finish")
    assert (fence.finishing, fence.aborted) == (1, 0)
    assert bench.engine.governance.in_flight(ACME, 1) == 1
    counts = bench.engine.governance.purge(ACME, 1, scrub=True)
    assert counts.blocks_in_use > 0
    while bench.engine.has_work:
        bench.step()
    assert bench.engine.governance.in_flight(ACME, 1) == 0
    assert bench.engine.governance.recount(ACME, 1) == bench.engine.governance.residue(ACME, 1) == 0
    assert len(bench.tokens("1")) == 12
    assert cached(bench, "3", scope=BETA) == HIT


def test_requests_in_flight_can_be_aborted_and_say_so() -> None:
    bench = make_bench()
    for name, scope in (("1", ACME), ("2", BETA), ("3", ACME)):
        bench.engine.add_request(make_request(name, PROMPT, scope=scope))
    bench.step()
    fence = bench.engine.governance.fence(ACME, 1, "Abort")
    assert (fence.finishing, fence.aborted) == (0, 2)
    assert bench.engine.governance.purge(ACME, 1, scrub=True).blocks_in_use == 0
    while bench.engine.has_work:
        bench.step()
    reasons = {name: bench.outputs[name][-1].finish_reason for name in "123"}
    assert reasons == {"1": "abort", "2": "length", "3": "abort"}


def test_a_block_that_changes_scope_is_overwritten_first() -> None:
    bench = make_bench(num_blocks=6)
    cached(bench, "1")
    for number in range(6):
        bench.engine.add_request(make_request(str(10 + number), [99], scope=BETA, max_tokens=2))
    bench.step()
    blocks = bench.engine._kv_cache.pool.owned_below(BETA, 1)
    assert len(blocks) == 6
    assert (bench.runner._kv[blocks] != 0).sum() == 6


def test_a_block_taken_over_from_below_a_floor_is_overwritten_first() -> None:
    bench = make_bench(num_blocks=6)
    cached(bench, "1")
    bench.engine.governance.fence(ACME, 1, "Finish")
    for number in range(6):
        bench.engine.add_request(make_request(str(10 + number), [99], floor=1, max_tokens=2))
    bench.step()
    # Evicted, not purged: nothing says any more that these blocks held bytes from below the floor.
    assert bench.engine.governance.purge(ACME, 1, scrub=True).overwritten.blocks == 0
    blocks = bench.engine._kv_cache.pool.owned_below(ACME, 2)
    assert len(blocks) == 6
    assert (bench.runner._kv[blocks] != 0).sum() == 6


def test_what_a_request_leaves_outside_the_index_is_overwritten_when_it_ends() -> None:
    bench = make_bench()
    cached(bench, "1")
    held = bench.engine._kv_cache.pool.owned_below(ACME, 1)
    assert len(held) == bench.engine.stats().cached_blocks == 5
    assert bench.runner.holds_nothing(set(range(65)) - set(held))


@pytest.mark.parametrize("after", [1, 5])
def test_a_purged_engine_answers_as_one_that_never_saw_the_scope(after: int) -> None:
    seen, fresh = make_bench(num_blocks=20), make_bench(num_blocks=20)
    for number in range(after):
        cached(seen, f"old {number}")
    seen.engine.governance.purge(ACME, 1, scrub=True)
    for bench in (seen, fresh):
        prompts = [PROMPT, PROMPT[:9], PROMPT]
        bench.run(*(make_request(f"a{i}", p, floor=1) for i, p in enumerate(prompts)))
        bench.run(*(make_request(f"b{i}", p, scope=BETA) for i, p in enumerate(prompts)))
    names = [f"{letter}{number}" for letter in "ab" for number in range(3)]
    assert [seen.outputs[n] for n in names] == [fresh.outputs[n] for n in names]
