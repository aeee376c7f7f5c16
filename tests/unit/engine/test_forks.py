"""Choices of one prompt: it is computed once, and each goes its own way from there."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_engine.request import Request
from tests.support.engine_core import ACME, Bench, expected_tokens, make_bench, make_request

PROMPT = list(range(40, 60))


def forks(count: int, **options: object) -> list[Request]:
    """`count` choices of one prompt; all but the first wait for it."""
    first = make_request("0", PROMPT, **options)  # type: ignore[arg-type]
    return [first] + [
        replace(first, request_id=str(number), choice=number, fork_of="0")
        for number in range(1, count)
    ]


def check_texts(bench: Bench, names: list[str]) -> None:
    for name in names:
        assert bench.tokens(name) == expected_tokens(PROMPT, 4)


def test_the_prompt_is_computed_once() -> None:
    bench = make_bench(max_num_batched_tokens=8, max_num_seqs=8)
    last = bench.run(*forks(4))
    check_texts(bench, ["0", "1", "2", "3"])
    # All full blocks but the one that holds the last token, which must be computed for its logits.
    assert [output.cached_tokens for output in last] == [0, 16, 16, 16]
    stats = bench.engine.stats()
    assert (stats.requests, stats.kv_blocks_used, stats.kv_block_references) == (0, 0, 0)


@pytest.mark.parametrize("options", [{"cached": False}, {"store": False}])
def test_nobody_waits_for_blocks_that_will_not_be_found(options: dict[str, bool]) -> None:
    bench = make_bench()
    for request in forks(3, **options):
        bench.engine.add_request(request)
    assert len(bench.step()) == 3


def test_a_fork_of_a_request_that_has_begun_or_is_gone_waits_for_nobody() -> None:
    bench = make_bench()
    first, second, third = forks(3)
    bench.engine.add_request(first)
    bench.step()
    bench.engine.add_request(second)
    assert {output.request_id for output in bench.step()} == {"0", "1"}
    while bench.engine.has_work:
        bench.step()
    bench.run(third)
    check_texts(bench, ["0", "1", "2"])


def test_a_held_fork_keeps_its_place_before_later_arrivals() -> None:
    bench = make_bench(max_num_seqs=1)
    for request in [*forks(2), make_request("later", [1, 2, 3])]:
        bench.engine.add_request(request)
    ended = []
    while bench.engine.has_work:
        ended += [output.request_id for output in bench.step() if output.finish_reason]
    assert ended == ["0", "1", "later"]


def test_forks_go_on_when_the_first_choice_is_aborted() -> None:
    bench = make_bench()
    for request in forks(3):
        bench.engine.add_request(request)
    assert bench.engine.abort_request("0")
    bench.engine.check_integrity()
    assert bench.engine.abort_request("2")
    while bench.engine.has_work:
        bench.step()
    check_texts(bench, ["1"])


def test_a_held_fork_is_in_flight_and_ends_with_its_scope() -> None:
    bench = make_bench()
    for request in forks(3):
        bench.engine.add_request(request)
    assert bench.engine.governance.in_flight(ACME, 1) == 3
    assert bench.engine.governance.fence(ACME, 1, "Abort").aborted == 3
    assert {output.finish_reason for output in bench.step()} == {"abort"}
    assert not bench.engine.has_work
    assert bench.engine.stats().requests == 0


def test_a_held_fork_ends_at_its_deadline() -> None:
    bench = make_bench(max_num_batched_tokens=8, max_num_seqs=8)
    now = bench.clock.now
    requests = [replace(one, deadline=now + 1.0) for one in forks(3)]
    for request in [replace(requests[0], deadline=math.inf), *requests[1:]]:
        bench.engine.add_request(request)
    bench.step()
    bench.clock.advance(1.0)
    ended = {output.request_id: output for output in bench.step() if output.finish_reason}
    assert sorted(ended) == ["1", "2"]
    assert {one.finish_reason for one in ended.values()} == {"deadline"}
    bench.engine.check_integrity()
    while bench.engine.has_work:
        bench.step()
    check_texts(bench, ["0"])


@given(
    st.lists(st.tuples(st.sampled_from(["abort", "preempt", "step"]), st.integers(0, 4))),
    st.integers(3, 9),
)
def test_any_order_of_events_keeps_the_books(events: list[tuple[str, int]], budget: int) -> None:
    bench = make_bench(num_blocks=9, block_size=4, max_num_seqs=3, max_num_batched_tokens=budget)
    for request in forks(5):
        bench.engine.add_request(request)
    alive = {str(number) for number in range(5)}
    for what, number in events:
        if what == "step":
            bench.step()
        elif what == "preempt":
            bench.engine.preempt(str(number))
        elif bench.engine.abort_request(str(number)):
            alive.discard(str(number))
        bench.engine.check_integrity()
    while bench.engine.has_work:
        bench.step()
    check_texts(bench, sorted(alive))
    assert bench.engine.stats().kv_blocks_used == 0
