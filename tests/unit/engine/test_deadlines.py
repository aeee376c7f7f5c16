"""Deadlines: refused at once where they can't be made, ended at once where they were missed."""

from __future__ import annotations

import math

import pytest

from fleetward_api.scope import Scope
from fleetward_engine.admission.step_costs import StepCosts
from fleetward_engine.errors import DeadlineUnreachable
from fleetward_engine.scheduling.deadlines import refuse_late
from fleetward_engine.scheduling.policy import SchedulingPolicy
from fleetward_engine.sequence import Sequence
from tests.support.engine_core import ACME, BETA, Bench, expected_tokens, make_bench, make_request


def slow(bench: Bench, *, tokens_per_second: float) -> None:
    """Let a step of the bench's engine take as long as it has prompt tokens."""
    run = bench.runner.run

    def timed(step):  # type: ignore[no-untyped-def]
        bench.clock.advance(len(step.token_ids) / tokens_per_second)
        return run(step)

    bench.runner.run = timed  # type: ignore[method-assign]


def reasons(bench: Bench) -> dict[str, str | None]:
    return {name: outputs[-1].finish_reason for name, outputs in bench.outputs.items()}


def test_a_deadline_that_has_passed_is_refused_at_once() -> None:
    bench = make_bench()
    with pytest.raises(DeadlineUnreachable):
        bench.engine.add_request(make_request("a", [1], deadline=bench.clock.now))
    assert not bench.engine.has_work
    bench.run(make_request("a", [1], deadline=bench.clock.now + 1))


def test_who_waits_beyond_its_deadline_ends_with_it_and_nobody_else_does() -> None:
    bench = make_bench(max_num_seqs=1)
    for name in "abc":
        deadline = bench.clock.now + 5 if name == "b" else math.inf
        bench.engine.add_request(
            make_request(name, [1, 2], deadline=deadline, arrival=bench.clock.now)
        )
    bench.step()
    bench.clock.advance(5)
    while bench.engine.has_work:
        bench.step()
    assert reasons(bench) == {"a": "length", "b": "deadline", "c": "length"}
    assert bench.outputs["b"][-1].queue_seconds == 5
    assert bench.tokens("c") == expected_tokens([1, 2], 4)


def test_who_runs_beyond_its_deadline_ends_and_gives_everything_back() -> None:
    bench = make_bench()
    bench.engine.add_request(make_request("a", [1] * 9, deadline=bench.clock.now + 1))
    bench.step()
    assert bench.engine.stats().running == 1
    bench.clock.advance(1)
    bench.step()
    assert reasons(bench) == {"a": "deadline"}
    assert bench.outputs["a"][-1].completion_tokens == 1
    stats = bench.engine.stats()
    assert (stats.requests, stats.kv_blocks_used) == (0, 0)


def test_one_that_ends_in_time_is_forgotten() -> None:
    bench = make_bench()
    bench.run(make_request("a", [1], deadline=bench.clock.now + 1))
    bench.engine.add_request(make_request("b", [1], deadline=bench.clock.now + 1))
    assert bench.engine.abort_request("b")
    bench.clock.advance(9)
    bench.run(make_request("c", [1]))
    assert reasons(bench) == {"a": "length", "c": "length"}


def test_other_choices_of_a_prompt_end_with_their_deadline_too() -> None:
    bench = make_bench()
    deadline = bench.clock.now + 1
    for name, fork_of in (("a", ""), ("b", "a")):
        bench.engine.add_request(make_request(name, [1] * 9, deadline=deadline, fork_of=fork_of))
    bench.clock.advance(1)
    while bench.engine.has_work:
        bench.step()
    assert reasons(bench) == {"a": "deadline", "b": "deadline"}


def test_what_is_ahead_decides_at_the_rate_that_was_measured() -> None:
    bench = make_bench(max_num_seqs=1, num_blocks=200)
    slow(bench, tokens_per_second=10)
    bench.run(make_request("warm", [9] * 20, cached=False, max_tokens=1))
    bench.engine.add_request(make_request("a", [1] * 50, cached=False))
    now = bench.clock.now
    with pytest.raises(DeadlineUnreachable) as late:
        bench.engine.add_request(make_request("b", [2] * 10, deadline=now + 5.9))
    assert late.value.wait_s == pytest.approx(6.0)
    bench.engine.add_request(make_request("c", [2] * 10, deadline=now + 6.1))


def test_ones_own_cached_prompt_counts_and_another_tenants_cache_does_not() -> None:
    bench = make_bench(num_blocks=200)
    slow(bench, tokens_per_second=10)
    bench.run(make_request("warm", [1] * 41, scope=ACME, max_tokens=1))
    deadline = bench.clock.now + 1
    with pytest.raises(DeadlineUnreachable):
        bench.engine.add_request(make_request("b", [1] * 41, scope=BETA, deadline=deadline))
    bench.engine.add_request(make_request("a", [1] * 41, scope=ACME, deadline=deadline))


@pytest.mark.parametrize(
    ("policy", "late"),
    [
        (SchedulingPolicy(), {"low", "high", "other"}),
        (SchedulingPolicy("priority", 60.0), {"low"}),
        (SchedulingPolicy("weighted-fair"), {"low", "high"}),
    ],
)
def test_only_those_who_surely_go_first_count(policy: SchedulingPolicy, late: set[str]) -> None:
    bench = make_bench(max_num_seqs=1, num_blocks=200, scheduling=policy)
    slow(bench, tokens_per_second=10)
    bench.run(make_request("warm", [9] * 20, cached=False, max_tokens=1))
    bench.engine.add_request(make_request("a", [1] * 50, cached=False, priority=1))
    refused = set()
    for name, tenant in (("low", "acme"), ("high", "acme"), ("other", "beta")):
        priority = 0 if name == "low" else 5
        try:
            bench.engine.add_request(
                make_request(
                    name, [2], cached=False, scope=Scope(tenant), priority=priority,
                    deadline=bench.clock.now + 1,
                )
            )  # fmt: skip
        except DeadlineUnreachable:
            refused.add(name)
    assert refused == late


def test_nothing_is_refused_before_anything_was_measured() -> None:
    costs = StepCosts()
    sequence = Sequence(make_request("a", [1], deadline=5.0), order=1)
    refuse_late(sequence, costs.at_least_s(10**9), 4.9)
    costs.observe(prefill_tokens=0, decode_rows=0, seconds=1.0)
    refuse_late(sequence, costs.at_least_s(10**9), 4.9)


def test_what_is_left_of_a_running_prompt_counts_for_its_own_tenant_alone() -> None:
    """It would tell another one what of that prompt was cached."""
    bench = make_bench(max_num_batched_tokens=8, max_num_seqs=4)
    bench.engine.add_request(make_request("long", [1] * 24, scope=ACME))
    bench.step()
    left = bench.engine._scheduler.prompt_tokens_before
    own, other = (Sequence(make_request("x", [1], scope=each), order=9) for each in (ACME, BETA))
    assert (left(own), left(other)) == (16, 0)
