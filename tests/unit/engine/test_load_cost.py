"""When a prefix is loaded from host memory instead of computed again."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from fleetward_engine.host_tier.load_cost import (
    MAX_LOAD_S,
    LoadRates,
    Rate,
    blocks_worth_loading,
)

found = st.integers(0, 10**6)
sizes = st.integers(1, 10**9)
speeds = st.floats(1e-3, 1e15)
costs = st.floats(1e-12, 1e3)


@given(found=found, size=sizes, tokens=st.integers(1, 512), speed=speeds, cost=costs)
def test_all_that_a_step_may_wait_for_or_nothing(
    found: int, size: int, tokens: int, speed: float, cost: float
) -> None:
    count = blocks_worth_loading(
        found, block_bytes=size, block_tokens=tokens,
        load_bytes_per_s=speed, prefill_s_per_token=cost,
    )  # fmt: skip
    load_s, compute_s = size / speed, tokens * cost
    assert 0 <= count <= found
    if load_s >= compute_s:
        assert count == 0
    elif found:
        assert count >= 1
        assert count == 1 or count * load_s <= MAX_LOAD_S * (1 + 1e-9)
        assert count == found or (count + 1) * load_s > MAX_LOAD_S * (1 - 1e-9)


@given(found=found, size=sizes, tokens=st.integers(1, 512), cost=costs | st.just(0.0))
def test_what_nobody_has_measured_does_not_stop_the_first_load(
    found: int, size: int, tokens: int, cost: float
) -> None:
    count = blocks_worth_loading(
        found, block_bytes=size, block_tokens=tokens,
        load_bytes_per_s=None, prefill_s_per_token=cost,
    )  # fmt: skip
    assert count == found


@given(st.lists(st.tuples(st.floats(1, 1e12), st.floats(1e-9, 1e6)), min_size=1, max_size=50))
def test_a_rate_lies_between_the_slowest_and_the_fastest_measured(
    measured: list[tuple[float, float]],
) -> None:
    rate = Rate()
    for amount, seconds in measured:
        rate.observe(amount, seconds)
    speeds = [amount / seconds for amount, seconds in measured]
    assert rate.value is not None
    assert min(speeds) * (1 - 1e-9) <= rate.value <= max(speeds) * (1 + 1e-9)


def test_a_rate_follows_what_changed_and_leaves_out_what_tells_nothing() -> None:
    rate = Rate()
    assert rate.value is None
    for odd in (0.0, -1.0, math.nan):
        rate.observe(10, odd)
        rate.observe(odd, 1)
    assert rate.value is None
    for _ in range(50):
        rate.observe(100, 1)
    for _ in range(50):
        rate.observe(10, 1)
    assert rate.value is not None
    assert 10 <= rate.value < 11


def test_until_something_was_loaded_it_is_taken_to_be_as_fast_as_storing() -> None:
    rates = LoadRates()
    assert rates.load_bytes_per_s is None
    rates.stored_bytes.observe(100, 1)
    assert rates.load_bytes_per_s == 100
    rates.loaded_bytes.observe(30, 1)
    assert rates.load_bytes_per_s == 30
