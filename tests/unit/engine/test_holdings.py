"""What an engine tells of each tenant's cache."""

from __future__ import annotations

from fleetward_api.admin import MAX_KV_HOLDINGS
from fleetward_api.scope import Scope
from fleetward_engine.admin.holdings import tell_holdings
from fleetward_engine.outputs import KvHolding
from tests.support.engine_core import ACME, BETA, make_bench, make_request


def holding(tenant: str, blocks: int, *, user: str = "", oldest: float | None = 1.0) -> KvHolding:
    return KvHolding(
        scope=Scope(tenant, user=user), retention_class="", blocks=blocks, hits=1, oldest=oldest
    )


def test_scopes_of_a_tenant_are_one_and_empty_ones_are_left_out() -> None:
    parts = [holding("a", 2, user="u"), holding("a", 3, oldest=0.5), holding("b", 0, oldest=None)]
    (told,) = tell_holdings(parts, now=2.0)
    assert (told.tenant, told.blocks, told.hits, told.oldest_age_ms) == ("a", 5, 2, 1500)


def test_the_largest_come_first_and_no_more_than_an_answer_holds() -> None:
    told = tell_holdings([holding(f"t{number}", number) for number in range(300)], now=0.0)
    assert len(told) == MAX_KV_HOLDINGS
    assert [one.blocks for one in told] == list(range(299, 299 - MAX_KV_HOLDINGS, -1))
    assert told[0].oldest_age_ms == 0


def test_an_engine_keeps_tenants_and_classes_apart() -> None:
    bench = make_bench()
    for number, (scope, name) in enumerate(((ACME, ""), (ACME, "short"), (BETA, ""))):
        prompt = [number] * 18
        bench.run(make_request(str(number), prompt, scope=scope, retention_class=name))
    bench.clock.advance(3.0)
    bench.run(make_request("again", [0] * 18, max_tokens=1))
    told = tell_holdings(bench.engine.stats().holdings, bench.clock.now)
    found = [(one.tenant, one.retention_class, one.blocks, one.hits) for one in told]
    assert found == [("acme", "", 5, 4), ("acme", "short", 5, 0), ("beta", "", 5, 0)]
    assert told[0].oldest_age_ms == 3000
