"""When a service's status tells anew who has how much cached."""

from __future__ import annotations

import datetime as dt
import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.admin import KvHolding, MemberState
from fleetward_api.resources import InferenceService, KvCacheStatus
from fleetward_operator.core.kv_report import MAX_HOLDINGS, report_kv
from fleetward_operator.core.service_plan import plan_service
from fleetward_operator.edges.bundles import EngineWords
from tests.support.operator_facts import (
    CONFIG,
    NOW,
    deployment,
    engine_state,
    observed,
    pod,
    service,
)

LATER = NOW + dt.timedelta(seconds=30)


def state(total: int = 1000, **blocks: int) -> MemberState:
    holdings = tuple(
        KvHolding(tenant=name, blocks=count, hits=count * 2, oldest_age_ms=5000)
        for name, count in blocks.items()
    )
    return MemberState(
        kind="engine", pod_uid="p", kv_blocks_total=total, kv_block_bytes=100, kv_holdings=holdings
    )


def told(*states: MemberState, before: KvCacheStatus | None = None, now: dt.datetime = NOW):  # type: ignore[no-untyped-def]
    return report_kv(states, unread=False, before=before, now=now)


def reporting(report: KvCacheStatus | None) -> InferenceService:
    """A service with this report in its status."""
    plain = service()
    status = plain.status.model_copy(update={"kv_cache": report})
    return plain.model_copy(update={"status": status})


def test_replicas_are_added_up() -> None:
    report = told(state(a=10, b=40), state(a=20))
    assert report is not None
    assert [(one.tenant, one.blocks) for one in report.holdings] == [("b", 40), ("a", 30)]
    assert [(one.bytes, one.hits) for one in report.holdings] == [(4000, 80), (3000, 60)]
    assert report.holdings[0].oldest == "2026-01-01T11:59:55Z"
    assert (report.total_blocks, report.observed_at) == (2000, "2026-01-01T12:00:00Z")


def test_classes_of_one_tenant_are_kept_apart() -> None:
    both = MemberState(
        kind="engine",
        pod_uid="p",
        kv_holdings=(
            KvHolding(tenant="a", blocks=3, hits=0, oldest_age_ms=0),
            KvHolding(tenant="a", retention_class="short", blocks=2, hits=0, oldest_age_ms=0),
        ),
    )
    report = told(both)
    assert [(one.retention_class, one.blocks) for one in report.holdings] == [("", 3), ("short", 2)]


def test_host_memory_is_told_beside_the_device_and_moves_a_report_too() -> None:
    def tiers(*, device: int, host: int, room: int = 100) -> MemberState:
        held = [
            KvHolding(tenant="a", blocks=count, hits=1, oldest_age_ms=0) for count in (device, host)
        ]
        return state(a=0).model_copy(
            update={
                "kv_holdings": (held[0],),
                "host_kv_holdings": (held[1],),
                "host_kv_blocks_total": room,
                "host_kv_block_bytes": 116,
            }
        )

    report = told(tiers(device=5, host=20), tiers(device=0, host=3))
    [holding] = report.holdings
    assert (holding.blocks, holding.bytes) == (5, 500)
    assert (holding.host_blocks, holding.host_bytes, holding.hits) == (23, 23 * 116, 3)
    assert report.total_host_blocks == 200
    before = told(tiers(device=5, host=20))
    assert told(tiers(device=5, host=29), before=before, now=LATER) is before
    assert told(tiers(device=5, host=30), before=before, now=LATER) is not before
    assert told(state(a=5)).total_host_blocks is None
    assert told(state(a=5)).holdings[0].host_blocks is None


def test_nothing_cached_is_nothing_told() -> None:
    assert told() is None
    assert told(state(a=0)) is None


@pytest.mark.parametrize(
    ("after", "seconds", "moves"),
    [
        ({"a": 100, "b": 299}, 3600, False),
        ({"a": 199, "b": 200}, 3600, False),
        ({"a": 200, "b": 200}, 30, True),
        ({"a": 200, "b": 200}, 29, False),
        ({"a": 0, "b": 200}, 30, True),
        ({"a": 100, "b": 200, "c": 1}, 30, True),
        ({}, 30, True),
        ({}, 29, False),
    ],
)
def test_a_report_moves_by_ten_points_or_a_tenant_and_not_within_30_seconds(
    after: dict[str, int], seconds: int, moves: bool
) -> None:
    before = told(state(a=100, b=200))
    now = NOW + dt.timedelta(seconds=seconds)
    report = told(state(**after), before=before, now=now)
    assert (report != before) is moves
    if moves:
        assert report == told(state(**after), now=now)


def test_a_report_of_a_clock_that_was_ahead_is_no_reason_to_wait() -> None:
    ahead = told(state(a=100), now=NOW + dt.timedelta(minutes=10))
    assert told(state(b=100), before=ahead) == told(state(b=100))


def test_what_does_not_fit_is_counted() -> None:
    blocks = {f"t{number:03}": number for number in range(1, MAX_HOLDINGS + 3)}
    report = told(state(**blocks))
    assert len(report.holdings) == MAX_HOLDINGS
    assert report.other_blocks == 1 + 2


@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 300)), min_size=1, max_size=40)
)
def test_no_story_writes_more_than_twice_a_minute_or_what_has_not_moved(
    story: list[dict[str, int]],
) -> None:
    report: KvCacheStatus | None = None
    now, written = NOW, []
    for blocks in story:
        now += dt.timedelta(seconds=7)
        after = told(state(**blocks), before=report, now=now)
        if after != report and report is not None and after is not None:
            written.append(now)
        report = after
    gaps = [later - earlier for earlier, later in itertools.pairwise(written)]
    assert all(gap >= dt.timedelta(seconds=30) for gap in gaps)


def test_an_engine_in_service_is_asked_again_after_a_while_and_told_in_the_status() -> None:
    ready = pod("a", ready=True)
    asked = engine_state(ready.uid).model_copy(update={"kv_holdings": state(x=5).kv_holdings})
    seen = observed(pods=(ready,), live=deployment(wanted=1), states={ready.uid: asked})
    plan = plan_service(seen, config=CONFIG, now=NOW)
    assert plan.reads == ()
    assert plan.status.kv_cache is not None
    assert [one.tenant for one in plan.status.kv_cache.holdings] == ["x"]
    stale = plan_service(replace(seen, stale=frozenset({ready.uid})), config=CONFIG, now=NOW)
    assert stale.reads == (ready,)


def test_a_service_that_was_scaled_to_zero_has_nothing_cached() -> None:
    reported = observed(reporting(told(state(a=5))))
    for now in (NOW, LATER):
        plan = plan_service(reported, config=CONFIG, now=now)
        assert plan.status.kv_cache is None
        again = plan_service(observed(), config=CONFIG, now=now)
        assert again.status.kv_cache is None


def test_an_operator_that_has_just_started_leaves_the_report_as_it_is() -> None:
    report, ready = told(state(a=5)), pod("a", ready=True)
    seen = observed(
        reporting(report), pods=(ready,), live=deployment(wanted=1), states={}, stale={ready.uid}
    )
    assert plan_service(seen, config=CONFIG, now=LATER).status.kv_cache == report
    assert report_kv([], unread=True, before=None, now=NOW) is None


def test_a_state_gets_old_and_a_restart_forgets_it() -> None:
    words = EngineWords()
    words.notice_restart("p", 0)
    assert words.stale(["p"], before=-1e9) == {"p"}
    words.stated("p", state(), 100.0)
    assert words.stale(["p"], before=100.0) == set()
    assert words.stale(["p", "q"], before=100.1) == {"p", "q"}
    words.notice_restart("p", 1)
    assert words.stale(["p"], before=0.0) == {"p"}
    assert words.states == {}
