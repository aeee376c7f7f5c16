"""Deadlines are exact, whatever was touched or removed in between."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from fleetward_engine.expiry import ExpiryQueue


@dataclass(eq=False)
class Thing:
    """Dies at its deadline."""

    deadline: float


TIMES = st.integers(0, 30).map(float)


@given(st.lists(TIMES), TIMES)
def test_pops_exactly_what_is_due(deadlines: list[float], now: float) -> None:
    queue: ExpiryQueue[Thing] = ExpiryQueue()
    things = [Thing(deadline) for deadline in deadlines]
    for thing in things:
        queue.add(thing)
    expired = queue.pop_expired(now)
    assert sorted(t.deadline for t in expired) == sorted(t for t in deadlines if t <= now)
    assert len(queue) == len(things) - len(expired)
    assert queue.pop_expired(now) == []


@given(st.lists(st.tuples(TIMES, TIMES, st.booleans()), max_size=200), TIMES)
def test_use_moves_deadlines_and_discarded_things_never_come_back(
    plan: list[tuple[float, float, bool]], now: float
) -> None:
    queue: ExpiryQueue[Thing] = ExpiryQueue()
    kept = []
    for deadline, later, discard in plan:
        thing = Thing(deadline)
        ticket = queue.add(thing)
        thing.deadline = max(deadline, later)
        if discard:
            queue.discard(ticket)
        else:
            kept.append(thing)
    expired = queue.pop_expired(now)
    assert {id(t) for t in expired} == {id(t) for t in kept if t.deadline <= now}
    rest = queue.pop_expired(31.0)
    assert {id(t) for t in rest} == {id(t) for t in kept if t.deadline > now}


def test_a_deadline_moved_earlier_is_kept_once_refiled() -> None:
    queue: ExpiryQueue[Thing] = ExpiryQueue()
    thing = Thing(100.0)
    ticket = queue.add(thing)
    assert ticket is not None
    thing.deadline = 5.0
    queue.refile(ticket)
    assert queue.pop_expired(5.0) == [thing]
    assert queue.pop_expired(200.0) == []


def test_immortal_things_are_not_filed() -> None:
    queue: ExpiryQueue[Thing] = ExpiryQueue()
    assert queue.add(Thing(math.inf)) is None
    queue.discard(None)
    assert len(queue) == 0


def test_husks_do_not_pile_up() -> None:
    queue: ExpiryQueue[Thing] = ExpiryQueue()
    for _ in range(10_000):
        queue.discard(queue.add(Thing(1e9)))
    assert len(queue._heap) < 200
