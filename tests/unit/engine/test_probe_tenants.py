"""Probes' tenants: real to the cache, in nobody's books, and in nobody's way."""

from __future__ import annotations

import pytest

from fleetward_api.scope import Scope
from fleetward_engine.probe_tenants import PROBE_TENANTS
from fleetward_engine.share_rules import ShareRules
from tests.support.engine_core import ACME, BETA, Bench, make_bench, make_request

PROBE = Scope(PROBE_TENANTS[0])
PROMPT = list(range(40, 49))
FLOOR = ShareRules(max_percent=50, guaranteed_percent=25)


def bench_with(rules: ShareRules, *, num_blocks: int = 64) -> Bench:
    bench = make_bench(num_blocks=num_blocks)
    bench.engine.governance.set_share_rules(rules)
    return bench


def ask(bench: Bench, name: str, scope: Scope) -> int:
    return bench.run(make_request(name, PROMPT, scope=scope, max_tokens=1))[0].cached_tokens


def flood(bench: Bench, scope: Scope) -> None:
    for number in range(40):
        prompt = [100 + number] * 17
        bench.run(make_request(f"{scope.tenant} {number}", prompt, scope=scope, max_tokens=1))


def test_a_probe_reuses_its_own_and_stands_in_no_count() -> None:
    bench = bench_with(ShareRules())
    ask(bench, "tenant", ACME)
    before = bench.engine.stats()
    assert [ask(bench, name, PROBE) for name in ("first", "again")] == [0, 8]
    after = bench.engine.stats()
    assert after.cached_blocks == before.cached_blocks + 2
    for count in (
        "shares", "holdings", "scope_counts", "prefix_query_tokens", "prefix_hit_tokens",
        "prompt_tokens", "generation_tokens",
    ):  # fmt: skip
        assert getattr(after, count) == getattr(before, count), count


@pytest.mark.parametrize("scope", [PROBE, BETA], ids=["a probe", "a tenant"])
def test_a_probe_is_guaranteed_nothing_and_takes_nothing_from_guarantees(scope: Scope) -> None:
    bench = bench_with(FLOOR)
    for name in ("acme", "gamma", "delta"):
        ask(bench, name, Scope(name))
    guaranteed = bench.engine.stats().kv_blocks_guaranteed
    ask(bench, "another", scope)
    lowered = bench.engine.stats().kv_blocks_guaranteed < guaranteed
    assert lowered is (scope == BETA)


@pytest.mark.parametrize("scope", [PROBE, BETA], ids=["a probe", "a tenant"])
def test_what_a_probe_leaves_goes_for_anybody(scope: Scope) -> None:
    bench = bench_with(ShareRules(max_percent=75, guaranteed_percent=25))
    ask(bench, "first", scope)
    for name in ("acme", "gamma"):
        flood(bench, Scope(name))
    kept = ask(bench, "again", scope) > 0
    assert kept is (scope == BETA)
