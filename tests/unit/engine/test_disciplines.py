"""Queue disciplines by themselves: who goes first, who may pass, and who gives way."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.scope import Scope
from fleetward_engine.errors import ConfigInvalid
from fleetward_engine.scheduling.discipline import Discipline
from fleetward_engine.scheduling.policy import PolicyName, SchedulingPolicy, build_discipline
from fleetward_engine.scheduling.weighted_fair import WeightedFair
from fleetward_engine.sequence import Sequence
from tests.support.engine_core import make_request

FCFS = SchedulingPolicy()
PRIORITY = SchedulingPolicy("priority", 10.0)
FAIR = SchedulingPolicy("weighted-fair")
POLICIES = [FCFS, PRIORITY, FAIR]


def make_sequence(order: int, tenant: str = "a", *, length: int = 3, **terms: object) -> Sequence:
    request = make_request(str(order), [1] * length, scope=Scope(tenant), **terms)  # type: ignore[arg-type]
    return Sequence(request, order=order)


def orders(line: Iterable[Sequence]) -> list[int]:
    return [sequence.order for sequence in line]


@pytest.mark.parametrize(
    ("name", "aging"),
    [("priority", None), ("fcfs", 5.0), ("weighted-fair", 1.0), ("priority", 0.0),
     ("priority", float("inf")), ("priority", float("nan"))],
)  # fmt: skip
def test_policies_that_starve_or_mean_nothing_are_refused(
    name: PolicyName, aging: float | None
) -> None:
    with pytest.raises(ConfigInvalid, match="scheduling_aging_after"):
        SchedulingPolicy(name, aging)


@pytest.mark.parametrize("policy", POLICIES)
@given(
    waiting=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(-3, 3), st.floats(0, 50)), max_size=20
    ),
    leaving=st.lists(st.integers(0, 19)),
)
def test_a_line_holds_who_joined_and_did_not_leave_in_order_of_rank(
    policy: SchedulingPolicy,
    waiting: list[tuple[str, int, float]],
    leaving: list[int],
) -> None:
    line = build_discipline(policy)
    here: dict[int, Sequence] = {}
    for order, (tenant, priority, arrival) in enumerate(waiting):
        here[order] = make_sequence(order, tenant, priority=priority, arrival=arrival)
        line.add(here[order])
    for order in leaving:
        if order in here:
            line.remove(here.pop(order))
            line.check_integrity()
    assert len(line) == len(here)
    assert sorted(orders(line)) == sorted(here)
    if here:
        assert next(iter(line)) is min(here.values(), key=line.rank)
    if policy is not FAIR:
        assert list(line) == sorted(here.values(), key=line.rank)


@given(
    first=st.tuples(st.integers(-1000, 1000), st.floats(0, 1e6)),
    second=st.tuples(st.integers(-1000, 1000), st.floats(0, 1e6)),
    aging=st.floats(0.001, 86_400),
)
def test_a_request_is_passed_only_within_its_ageing(
    first: tuple[int, float], second: tuple[int, float], aging: float
) -> None:
    line = build_discipline(SchedulingPolicy("priority", aging))
    (low, early), (high, late) = first, second
    one = make_sequence(1, priority=low, arrival=early)
    other = make_sequence(2, priority=high, arrival=late)
    margin = 1e-6 * (1 + early + late + aging * 1000)
    if late - early > (high - low) * aging + margin:
        assert line.rank(one) < line.rank(other)
    if late - early < (high - low) * aging - margin:
        assert line.rank(other) < line.rank(one)


def test_fair_order_takes_the_least_served_tenant_and_its_oldest() -> None:
    line = WeightedFair()
    for order, tenant in enumerate("aaabc"):
        line.add(make_sequence(order, tenant))
    assert orders(line) == [0, 3, 4, 1, 2]
    line.charge(make_sequence(9, "a"), prompt_tokens=5)
    line.charge(make_sequence(9, "b"), output_tokens=1)
    assert orders(line) == [4, 3, 0, 1, 2]
    assert (line.virtual_time("a"), line.virtual_time("b")) == (5, 2)


def test_weight_divides_what_is_charged() -> None:
    line = WeightedFair()
    for order, tenant in enumerate("ab"):
        line.add(make_sequence(order, tenant))
    line.charge(make_sequence(9, "a", weight=4), prompt_tokens=6, output_tokens=1)
    assert line.virtual_time("a") == 2


def test_idle_time_is_worth_nothing_and_debt_stays() -> None:
    line = WeightedFair()
    busy, guest = make_sequence(0, "busy"), make_sequence(1, "guest")
    line.add(busy)
    line.charge(busy, output_tokens=500)
    line.add(guest)
    assert line.virtual_time("guest") == line.virtual_time("busy") == 1000
    line.charge(guest, output_tokens=50)
    line.remove(guest)
    line.add(guest)
    assert line.virtual_time("guest") == 1100


def test_nothing_is_owed_once_nobody_waits() -> None:
    line = WeightedFair()
    one, other = make_sequence(0, "a"), make_sequence(1, "b")
    line.add(one)
    line.charge(one, output_tokens=500)
    line.remove(one)
    line.settle([one])
    line.charge(one, output_tokens=500)
    line.add(other)
    line.add(one)
    assert line.virtual_time("a") == line.virtual_time("b") == 0


def test_who_is_kept_out_by_its_own_limit_is_owed_nothing_for_it() -> None:
    line = WeightedFair()
    full, other = make_sequence(0, "full"), make_sequence(1, "other")
    for sequence in (full, other):
        line.add(sequence)
    line.hold_off(full)
    line.charge(other, output_tokens=10)
    line.charge(make_sequence(9, "running"), output_tokens=30)
    line.settle([])
    assert line.virtual_time("full") == line.virtual_time("other") == 20
    line.remove(other)
    line.hold_off(full)
    line.settle([])
    assert line.virtual_time("full") == line.virtual_time("running") == 60


def test_one_far_ahead_gives_way_and_the_youngest_of_it() -> None:
    line = WeightedFair()
    running = [make_sequence(order, "ahead") for order in range(3)]
    head = make_sequence(5, "behind")
    line.add(head)
    limit = 3 + 2 * 4  # the largest request: its prompt, and its answer at twice the price
    line.charge(running[0], prompt_tokens=limit)
    assert line.must_yield(head, running) is None
    line.charge(running[0], prompt_tokens=1)
    assert line.must_yield(head, running) is running[2]
    assert line.must_yield(make_sequence(6, "ahead"), running) is None


def test_passing_is_for_those_who_do_not_get_too_far_ahead_by_it() -> None:
    line = WeightedFair()
    head, own = make_sequence(0, "behind"), make_sequence(1, "behind")
    for sequence in (head, own, make_sequence(2, "ahead")):
        line.add(sequence)
    line.charge(make_sequence(9, "ahead"), prompt_tokens=8)
    # The largest request is 3 + 2 x 4 tokens.
    assert line.may_pass(make_sequence(3, "ahead", length=3), head)
    assert not line.may_pass(make_sequence(4, "ahead", length=4), head)
    assert line.may_pass(own, head)


@pytest.mark.parametrize("damage", ["order", "tenant", "empty"])
def test_integrity_check_finds_a_damaged_line(damage: str) -> None:
    line = WeightedFair()
    for order in range(2):
        line.add(make_sequence(order, "a"))
    if damage == "order":
        line._lines["a"].reverse()
    elif damage == "tenant":
        line._lines["b"] = [make_sequence(5, "a")]
    else:
        line._lines["a"].clear()
    with pytest.raises(AssertionError):
        line.check_integrity()
    ranked: Discipline = build_discipline(FCFS)
    for order in range(2):
        ranked.add(make_sequence(order))
    ranked._waiting.reverse()  # type: ignore[attr-defined]
    with pytest.raises(AssertionError, match="out of order"):
        ranked.check_integrity()
