"""The replay guard: once, in bounded memory, under any clock."""

from __future__ import annotations

import math
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fleetward_api.replay import DEFAULT_CAPACITY, ReplayGuard


def test_an_id_is_taken_once() -> None:
    guard = ReplayGuard(900)
    assert guard.accept("a", 60, 0)
    assert not guard.accept("a", 60, 1)
    assert not guard.accept("a", 600, 1)
    assert guard.accept("b", 60, 1)


def test_an_expired_token_is_refused_though_never_seen() -> None:
    guard = ReplayGuard(10)
    assert not guard.accept("a", 60, 70.1)
    assert guard.accept("a", 60, 70)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_time_that_is_no_time_is_refused(number: float) -> None:
    assert not ReplayGuard(10).accept("a", number, 0)
    assert not ReplayGuard(10).accept("a", 60, math.nan)


def test_a_clock_that_jumps_ahead_and_back_opens_no_window() -> None:
    guard = ReplayGuard(10)
    assert guard.accept("a", 60, 0)
    assert guard.accept("later", 100_060, 100_000)
    assert guard.remembered == 1
    assert not guard.accept("a", 60, 0)
    assert guard.accept("b", 61, 0)


def test_a_flood_forgets_the_oldest_and_refuses_them() -> None:
    guard = ReplayGuard(900, capacity=100)
    for n in range(10_000):
        assert guard.accept(f"id-{n}", 60 + n, 0)
        assert guard.remembered <= 100
    assert not any(guard.accept(f"id-{n}", 60 + n, 0) for n in range(10_000))
    assert guard.accept("fresh", 20_000, 0)


@pytest.mark.parametrize(("window", "capacity"), [(-1, 5), (math.nan, 5), (1, 0)])
def test_a_guard_needs_a_window_and_room(window: float, capacity: int) -> None:
    with pytest.raises(ValueError, match="replay guard"):
        ReplayGuard(window, capacity=capacity)


class Replays(RuleBasedStateMachine):
    """Whatever the clock does, no id is taken twice, memory is bounded, fresh tokens pass."""

    def __init__(self) -> None:
        super().__init__()
        self.guard = ReplayGuard(10, capacity=4)
        self.taken: set[str] = set()
        self.latest = 0.0

    @rule(
        name=st.sampled_from("ab"),
        lifetime=st.integers(-30, 60),
        now=st.integers(0, 200) | st.integers(0, 10**9),
    )
    def show(self, name: str, lifetime: int, now: int) -> None:
        # A signature binds an id to its expiry, so the two name a token together.
        jti = f"{name}/{now + lifetime}"
        accepted = self.guard.accept(jti, now + lifetime, now)
        assert not (accepted and jti in self.taken)
        assert not (accepted and lifetime < -10)
        if accepted:
            self.taken.add(jti)
            self.latest = max(self.latest, now + lifetime)

    @rule(data=st.data(), now=st.integers(-(10**6), 10**9))
    def show_again(self, data: st.DataObject, now: int) -> None:
        if self.taken:
            jti = data.draw(st.sampled_from(sorted(self.taken)))
            expires_at = float(jti.rpartition("/")[2])
            assert not self.guard.accept(jti, expires_at, now)

    @rule()
    def a_token_later_than_all_passes(self) -> None:
        self.latest += 1
        jti = f"fresh/{self.latest}"
        assert self.guard.accept(jti, self.latest, self.latest - 1)
        self.taken.add(jti)

    @invariant()
    def memory_is_bounded(self) -> None:
        assert self.guard.remembered <= 4


TestReplays = Replays.TestCase


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50)), max_size=40))
def test_with_a_steady_clock_every_new_id_in_time_is_taken(shows: list[tuple[str, int]]) -> None:
    guard = ReplayGuard(10)
    seen: set[str] = set()
    for now, (name, lifetime) in enumerate(shows):
        jti = f"{name}/{now + lifetime}"
        assert guard.accept(jti, now + lifetime, now) == (jti not in seen)
        seen.add(jti)


def test_a_lagging_clock_costs_nobody_a_fresh_token_at_any_rate_an_engine_serves() -> None:
    assert DEFAULT_CAPACITY / 960 > 1000
    guard = ReplayGuard(900, capacity=9600)
    # Ten a second for 16 minutes are the capacity; every other gateway's clock is 15 min behind.
    for tick in range(9600 + 2000):
        now = tick / 10
        lag = 899 if tick % 2 else 0
        assert guard.accept(f"id-{tick}", int(now) - lag + 60, now), tick


def test_an_id_costs_a_hundred_bytes() -> None:
    guard = ReplayGuard(900)
    tracemalloc.start()
    for n in range(50_000):
        guard.accept(f"{n:032x}", 60 + n // 1000, 0)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert guard.remembered == 50_000
    assert held < 50_000 * 150
