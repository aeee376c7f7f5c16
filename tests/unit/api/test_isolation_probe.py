"""What an isolation probe's report proves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.canonical import canonical_bytes
from fleetward_api.isolation_probe import ProbeLook, ProbeReport, judge_probe

FIRST = ProbeLook(identity="the first request", may_reuse=False, cached_tokens=0)
SAME = ProbeLook(identity="the same identity", may_reuse=True, cached_tokens=32)
OTHER = ProbeLook(identity="another tenant", may_reuse=False, cached_tokens=0)


def report(*looks: ProbeLook, **facts: object) -> ProbeReport:
    return ProbeReport.model_validate(
        {"pod_uid": "p", "prompt_tokens": 33, "looks": looks, **facts}, by_name=True
    )


def test_a_hit_of_its_own_and_misses_of_others_are_a_proof() -> None:
    assert judge_probe(report(FIRST, SAME, OTHER)).verdict == "Proved"


def test_a_hit_of_another_scope_is_a_failure_that_names_it() -> None:
    hit = OTHER.model_copy(update={"cached_tokens": 32})
    found = judge_probe(report(FIRST, SAME, hit))
    assert found.verdict == "Failed"
    assert "another tenant found 32 of 33 tokens" in found.words


def test_what_outlives_the_purge_is_a_failure() -> None:
    found = judge_probe(report(FIRST, SAME, OTHER, left=2))
    assert found.verdict == "Failed"
    assert judge_probe(report(FIRST, SAME, OTHER, left=1)) == found


@pytest.mark.parametrize(
    "looks", [(), (SAME,), (FIRST, OTHER), (FIRST, SAME.model_copy(update={"cached_tokens": 0}))]
)
def test_half_a_probe_proves_nothing(looks: tuple[ProbeLook, ...]) -> None:
    assert judge_probe(report(*looks)).verdict == "NotProved"


def test_an_engine_without_reuse_separates_all() -> None:
    miss = SAME.model_copy(update={"cached_tokens": 0})
    assert judge_probe(report(FIRST, miss, OTHER)).verdict == "NotProved"
    assert judge_probe(report(FIRST, miss, OTHER, caching=False)).verdict == "Proved"


@pytest.mark.parametrize("why", ["Busy", "TooSmall", "PolicyChanged", "RequestFailed", "Later"])
def test_what_did_not_run_is_not_proved(why: str) -> None:
    assert judge_probe(report(FIRST, SAME, OTHER, not_run=why)).verdict == "NotProved"
    hit = OTHER.model_copy(update={"cached_tokens": 32})
    assert judge_probe(report(FIRST, hit, not_run=why)).verdict == "Failed"


looks = st.tuples(st.sampled_from(["one", "two"]), st.booleans(), st.integers(0, 40)).map(
    lambda drawn: ProbeLook(identity=drawn[0], may_reuse=drawn[1], cached_tokens=drawn[2])
)


@given(st.lists(looks, max_size=16), st.booleans(), st.integers(0, 3))
def test_nothing_that_crossed_a_scope_is_ever_a_proof(
    seen: list[ProbeLook], caching: bool, left: int
) -> None:
    told = report(*seen, caching=caching, left=left)
    crossed = any(look.cached_tokens and not look.may_reuse for look in seen)
    assert (judge_probe(told).verdict == "Failed") == (crossed or left > 0)


@given(st.lists(looks, max_size=16))
def test_a_report_reads_as_it_was_written(seen: list[ProbeLook]) -> None:
    told = report(*seen)
    assert ProbeReport.model_validate_json(canonical_bytes(told)) == told
