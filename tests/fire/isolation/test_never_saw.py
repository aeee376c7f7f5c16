"""Evict equals never saw: an engine that served and purged a tenant behaves as one that never did.

Compared are every answer (tokens, text, hits, times in the queue), refusals, who waits and who
runs, blocks in use and cached, guaranteed shares, and what is evicted, in which order.
"""

from __future__ import annotations

import pytest

from e2e.chaos.scale import is_full
from e2e.figures.record import record
from fleetward_engine.tenant_accounts import TenantAccounts
from tests.support.twin_engines import Outcome, outcome

HISTORIES = 5000 if is_full() else 220
FEWEST = HISTORIES * 3 // 4

pytestmark = pytest.mark.timeout(900)


def compared(seeds: range) -> dict[int, Outcome]:
    outcomes = {seed: outcome(seed) for seed in seeds}
    return {seed: each for seed, each in outcomes.items() if each is not None}


def test_a_purged_tenant_leaves_no_trace_in_what_happens_later() -> None:
    outcomes = compared(range(HISTORIES))
    differ = {seed: each.difference for seed, each in outcomes.items() if each.difference}
    assert not differ, next(iter(differ.items()))
    # Of enough histories, with something to see in them.
    assert len(outcomes) > FEWEST
    assert sum(each.hits for each in outcomes.values()) > FEWEST
    assert sum(each.evictions for each in outcomes.values()) > FEWEST
    if is_full():
        record("never-saw-differences", len(differ), f"{len(outcomes)} histories")


def test_a_trace_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TenantAccounts, "close", lambda _self, _tenant: None)
    assert any(each.difference for each in compared(range(40)).values())
