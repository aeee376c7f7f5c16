"""Quotas, guaranteed shares and what goes first, each with the paired case without them."""

from __future__ import annotations

import pytest

from fleetward_api.scope import Scope
from fleetward_engine.errors import RequestRefused
from fleetward_engine.scheduling.policy import PolicyName, SchedulingPolicy
from fleetward_engine.share_rules import ShareRules
from tests.support.engine_core import ACME, BETA, Bench, make_bench, make_request
from tests.support.watched_evictions import WatchedEvictions

GAMMA = Scope("gamma")
PROMPT = list(range(18))
HIT = 16
QUOTA = ShareRules(max_percent=50)
FLOOR = ShareRules(max_percent=75, guaranteed_percent=25)


def bench_with(rules: ShareRules, *, num_blocks: int = 64) -> Bench:
    bench = make_bench(num_blocks=num_blocks)
    bench.engine.governance.set_share_rules(rules)
    return bench


def ask(bench: Bench, name: str, prompt: list[int] = PROMPT, **options) -> int:  # type: ignore[no-untyped-def]
    return bench.run(make_request(name, prompt, **options))[0].cached_tokens


def flood(bench: Bench, scope: Scope, *, requests: int = 40, length: int = 17) -> None:
    for number in range(requests):
        prompt = [30 + number] * length
        bench.run(make_request(f"{scope.tenant} {number}", prompt, scope=scope, max_tokens=1))


def held(bench: Bench, scope: Scope) -> tuple[int, int]:
    share = bench.engine.stats().shares[scope.tenant]
    return share.in_use, share.cached


def test_a_tenant_above_its_share_evicts_only_its_own_before_the_pool_is_full() -> None:
    bench = bench_with(QUOTA)
    ask(bench, "1", scope=BETA)
    flood(bench, ACME)
    stats = bench.engine.stats()
    assert held(bench, ACME) == (0, 30)
    assert held(bench, BETA) == (0, 5)
    assert stats.scope_counts[ACME].evicted_quota == 40 * 4 - 30
    assert stats.scope_counts[ACME].evicted_pool == stats.scope_counts[BETA].evicted == 0
    assert ask(bench, "2", scope=BETA) == HIT


def test_without_a_quota_a_flood_takes_the_pool() -> None:
    bench = bench_with(ShareRules())
    ask(bench, "1", scope=BETA)
    flood(bench, ACME)
    counts = bench.engine.stats().scope_counts
    assert counts[BETA].evicted_pool == 5
    assert counts[ACME].evicted_quota == 0
    assert ask(bench, "2", scope=BETA) == 0


def test_a_flood_does_not_reach_below_a_floor() -> None:
    bench = bench_with(FLOOR)
    flood(bench, BETA, requests=4)
    flood(bench, ACME, requests=80)
    assert held(bench, BETA) == (0, 16)
    assert bench.engine.stats().kv_blocks_guaranteed == 16
    for number in range(4):
        prompt = [30 + number] * 17
        assert ask(bench, f"again {number}", prompt, scope=BETA, max_tokens=1) == HIT


def test_a_flood_does_reach_what_is_held_beyond_the_floor() -> None:
    bench = bench_with(FLOOR)
    flood(bench, BETA, requests=8)
    assert held(bench, BETA) == (0, 32)
    flood(bench, ACME, requests=80)
    assert held(bench, BETA) == (0, 16)


def test_what_one_may_use_does_not_depend_on_what_another_has_cached() -> None:
    full, empty = bench_with(FLOOR), bench_with(FLOOR)
    for bench in (full, empty):
        ask(bench, "met", [1], scope=BETA, max_tokens=1)
    flood(full, BETA, requests=8)
    for bench in (full, empty):
        for number in range(4):
            prompt = [50 + number] * 60
            bench.engine.add_request(make_request(str(number), prompt, max_tokens=40))
        while bench.engine.has_work:
            bench.step()
    names = [str(number) for number in range(4)]
    assert [full.outputs[n] for n in names] == [empty.outputs[n] for n in names]
    assert full.engine.stats().preemptions == empty.engine.stats().preemptions


def test_a_request_that_alone_exceeds_the_share_is_refused_with_the_sum() -> None:
    bench = bench_with(QUOTA)
    bench.engine.add_request(make_request("fits", [1] * 100, max_tokens=29))
    words = r"prompt \(100 tokens\) and max_tokens \(30\) need more than the 128 of .* 256 tokens"
    with pytest.raises(RequestRefused, match=words) as caught:
        bench.engine.add_request(make_request("1", [1] * 100, max_tokens=30))
    assert caught.value.param == "max_tokens"


def test_lowering_the_share_evicts_at_once_and_ends_what_cannot_fit() -> None:
    bench = bench_with(ShareRules())
    flood(bench, BETA, requests=10)
    bench.engine.add_request(make_request("long", [1] * 100, max_tokens=60))
    bench.engine.add_request(make_request("short", [1] * 10, max_tokens=60))
    bench.step()
    bench.engine.governance.set_share_rules(QUOTA)
    assert held(bench, BETA) == (0, 30)
    while bench.engine.has_work:
        bench.step()
    assert bench.outputs["long"][-1].finish_reason == "error"
    assert "lowered" in (bench.outputs["long"][-1].error or "")
    assert bench.outputs["short"][-1].finish_reason == "length"


def test_growth_beyond_the_own_share_preempts_the_own_tenants_requests_only() -> None:
    bench = bench_with(ShareRules(max_percent=25), num_blocks=32)
    for token, (name, scope) in enumerate((("a1", ACME), ("a2", ACME), ("b", BETA))):
        bench.engine.add_request(make_request(name, [token] * 8, scope=scope, max_tokens=20))
    while bench.engine.has_work:
        bench.step()
        account = bench.engine._kv_cache.pool.accounts.of("acme")
        assert account.in_use <= 8
    assert bench.engine.stats().preemptions >= 1
    assert all(len(bench.tokens(name)) == 20 for name in ("a1", "a2", "b"))
    assert [output.cached_tokens for output in bench.outputs["b"]] == [0] * 20


@pytest.mark.parametrize("policy", ["fcfs", "priority", "weighted-fair"])
def test_a_long_line_of_a_tenant_at_its_share_hides_nobody(policy: PolicyName) -> None:
    bench = bench_with(QUOTA)
    aging = 10.0 if policy == "priority" else None
    bench.engine.set_scheduling(SchedulingPolicy(policy, aging))
    for number in range(60):
        prompt = [number % 50] * 24
        bench.engine.add_request(make_request(f"a{number}", prompt, scope=ACME, max_tokens=8))
    bench.engine.add_request(make_request("b", PROMPT, scope=BETA, max_tokens=2))
    bench.step()
    running = {one.request.request_id for one in bench.engine._scheduler.running}
    assert "b" in running
    assert 1 < len(running) < 10
    while bench.engine.has_work:
        bench.step()
    assert {outputs[-1].finish_reason for outputs in bench.outputs.values()} == {"length"}


def test_who_waits_for_its_own_share_holds_up_its_own_tenant_only() -> None:
    bench = bench_with(ShareRules(max_percent=25), num_blocks=32)
    for token, (name, scope) in enumerate((("a1", ACME), ("a2", ACME), ("b", BETA))):
        bench.engine.add_request(make_request(name, [token] * 24, scope=scope, max_tokens=8))
    bench.step()
    scheduler = bench.engine._scheduler
    assert {sequence.request.request_id for sequence in scheduler.running} == {"a1", "b"}
    while bench.engine.has_work:
        bench.step()
    assert {bench.outputs[name][-1].finish_reason for name in ("a1", "a2", "b")} == {"length"}


def test_lower_priority_goes_first_where_the_policy_says_so() -> None:
    for by_priority, survivor in ((True, BETA), (False, ACME)):
        bench = bench_with(ShareRules(by_priority=by_priority), num_blocks=12)
        ask(bench, "1", scope=BETA, priority=5)
        ask(bench, "2", scope=ACME)
        ask(bench, "3", [9] * 24, scope=GAMMA, max_tokens=1)
        hits = {scope: ask(bench, scope.tenant, scope=scope) for scope in (ACME, BETA)}
        assert hits[survivor] > 0
        assert hits[BETA if survivor is ACME else ACME] < hits[survivor]


@pytest.mark.parametrize(("protected", "hit"), [(50, HIT), (0, 0)])
def test_reused_blocks_outlast_newcomers_where_they_are_protected(protected: int, hit: int) -> None:
    bench = bench_with(ShareRules(protected_percent=protected), num_blocks=24)
    ask(bench, "1")
    assert ask(bench, "2") == HIT
    flood(bench, ACME, requests=30)
    assert ask(bench, "3") == hit


def test_protection_is_bounded_and_the_least_recently_used_leaves_it() -> None:
    bench = bench_with(ShareRules(protected_percent=50), num_blocks=24)
    flood(bench, ACME, requests=5)
    flood_again = [f"again {number}" for number in range(5)]
    for number, name in enumerate(flood_again):
        assert ask(bench, name, [30 + number] * 17, max_tokens=1) == HIT
    account = bench.engine._kv_cache.pool.accounts.of("acme")
    assert len(account.protected) == 12
    assert account.held == 20


def test_two_that_compute_the_same_prompt_at_once_end_up_sharing_it() -> None:
    bench = make_bench(max_num_batched_tokens=64)
    for name in ("1", "2"):
        bench.engine.add_request(make_request(name, PROMPT))
    bench.step()
    tables = [s.block_table for s in bench.engine._scheduler.running]
    assert tables[0][:4] == tables[1][:4]
    assert bench.engine.stats().kv_blocks_used == 6
    while bench.engine.has_work:
        bench.step()
    assert bench.tokens("1") == bench.tokens("2")


def test_a_tenant_keeps_its_floor_when_it_holds_nothing() -> None:
    bench = bench_with(FLOOR)
    ask(bench, "1", scope=BETA)
    bench.engine.governance.limit_ttls(idle_ttl_ms=0, max_ttl_ms=0)
    flood(bench, ACME, requests=80)
    assert held(bench, BETA) == (0, 0)
    accounts = bench.engine._kv_cache.pool.accounts
    assert accounts.room_for(accounts.of("acme")) == 48
    assert accounts.room_for(accounts.of("beta")) == 48


def test_a_purged_tenant_is_guaranteed_nothing_until_it_comes_back() -> None:
    bench = bench_with(FLOOR)
    for number, tenant in enumerate(("t0", "t1", "t2")):
        ask(bench, str(number), [1], scope=Scope(tenant), max_tokens=1)
    assert bench.engine.stats().kv_blocks_guaranteed == 8
    bench.engine.add_request(make_request("runs", PROMPT, scope=Scope("t2"), floor=1))
    bench.step()
    for floor, tenant in ((1, "t0"), (1, "t1"), (1, "t2")):
        bench.engine.governance.purge(Scope(tenant), floor, scrub=True)
    # One of them runs above its floor: it is here as one who came after the purge.
    assert bench.engine.stats().kv_blocks_guaranteed == 16
    assert set(bench.engine.stats().shares) == {"t2"}
    bench.run()
    bench.engine.check_integrity()


def test_floors_shrink_evenly_where_more_tenants_come_than_fit() -> None:
    bench = bench_with(FLOOR)
    for number, guaranteed in enumerate((16, 16, 8, 5, 4)):
        ask(bench, str(number), [1], scope=Scope(f"t{number}"), max_tokens=1)
        assert bench.engine.stats().kv_blocks_guaranteed == guaranteed


def test_choices_are_judged_by_what_each_tenant_held() -> None:
    bench = bench_with(FLOOR)
    watched = WatchedEvictions(bench.engine._kv_cache)
    flood(bench, BETA, requests=8)
    flood(bench, ACME, requests=80)
    assert {choice.reason for choice in watched.choices} == {"pool", "quota"}
    watched.check()
