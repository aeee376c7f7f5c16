"""Setting conditions, and the completeness of what is documented about them."""

from __future__ import annotations

import datetime as dt
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.conditions import (
    CONDITION_TYPES,
    Condition,
    ConditionType,
    KindName,
    condition_types,
    find_condition,
    initial_conditions,
    set_condition,
    undocumented,
)

T0 = dt.datetime(2027, 1, 1, tzinfo=dt.UTC)
KINDS: tuple[KindName, ...] = get_args(KindName)

conditions = st.builds(
    Condition,
    type=st.sampled_from(["Ready", "Progressing", "Stalled"]),
    status=st.sampled_from(["True", "False", "Unknown"]),
    reason=st.sampled_from(["A", "B"]),
    message=st.text(max_size=5),
    observed_generation=st.integers(0, 5),
)
histories = st.lists(st.tuples(conditions, st.integers(0, 10**6)), max_size=12)


def play(history: list[tuple[Condition, int]]) -> tuple[Condition, ...]:
    """The conditions after setting each in turn."""
    state: tuple[Condition, ...] = ()
    for condition, second in history:
        state = set_condition(state, condition, T0 + dt.timedelta(seconds=second))
    return state


@given(histories)
def test_one_of_each_type_in_order_of_appearance(history: list[tuple[Condition, int]]) -> None:
    types = [entry.type for entry in play(history)]
    assert types == list(dict.fromkeys(entry.type for entry, _ in history))


@given(histories, conditions, st.integers(0, 10**6))
def test_the_new_one_stands_as_given(
    history: list[tuple[Condition, int]], new: Condition, second: int
) -> None:
    state = set_condition(play(history), new, T0 + dt.timedelta(seconds=second))
    found = find_condition(state, new.type)
    assert found is not None
    assert found.model_copy(update={"last_transition_time": ""}) == new


@given(histories, conditions, st.integers(0, 10**6), st.integers(0, 10**6))
def test_setting_it_again_later_changes_nothing(
    history: list[tuple[Condition, int]], new: Condition, first: int, second: int
) -> None:
    once = set_condition(play(history), new, T0 + dt.timedelta(seconds=first))
    assert set_condition(once, new, T0 + dt.timedelta(seconds=second)) == once


@given(histories, conditions)
def test_the_time_moves_exactly_when_the_status_does(
    history: list[tuple[Condition, int]], new: Condition
) -> None:
    before = play(history)
    later = T0 + dt.timedelta(days=30)
    after = set_condition(before, new, later)
    old, now = find_condition(before, new.type), find_condition(after, new.type)
    assert now is not None
    moved = now.last_transition_time == "2027-01-31T00:00:00Z"
    assert moved == (old is None or old.status != new.status)


@given(histories, conditions)
def test_others_stay_untouched(history: list[tuple[Condition, int]], new: Condition) -> None:
    before = play(history)
    after = set_condition(before, new, T0)
    assert [e for e in after if e.type != new.type] == [e for e in before if e.type != new.type]


def test_times_are_written_in_utc() -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    new = Condition(type="Ready", status="True", reason="A")
    state = set_condition((), new, dt.datetime(2027, 1, 1, 1, tzinfo=zone))
    assert state[0].last_transition_time == "2026-12-31T23:00:00Z"


@pytest.mark.parametrize("kind", KINDS)
def test_every_first_condition_is_documented(kind: KindName) -> None:
    first = initial_conditions(kind)
    assert len(first) == len(condition_types(kind)) >= 1
    assert undocumented(kind, first) == ()


def test_undocumented_reasons_are_found() -> None:
    odd = Condition(type="Ready", status="True", reason="Idle")
    assert undocumented("InferenceService", (odd,)) == ()
    assert undocumented("Tenant", (odd,)) == ("Ready=True/Idle",)
    wrong_status = odd.model_copy(update={"status": "False"})
    assert undocumented("InferenceService", (wrong_status,)) == ("Ready=False/Idle",)


def test_services_carry_the_agreed_conditions() -> None:
    assert [each.type for each in condition_types("InferenceService")] == [
        "Ready",
        "Progressing",
        "Degraded",
        "Reconciling",
        "Stalled",
        "ModelLoaded",
        "RouteReady",
        "ScalingActive",
        "CachePolicyEnforced",
        "IsolationVerified",
    ]


@pytest.mark.parametrize("each", CONDITION_TYPES, ids=lambda each: f"{each.kind}-{each.type}")
def test_reasons_are_words_with_a_meaning_and_stand_once(each: ConditionType) -> None:
    for reasons in (each.when_true, each.when_false, each.when_unknown):
        names = [reason.name for reason in reasons]
        assert len(names) == len(set(names))
        for reason in reasons:
            Condition(type="Ready", status="True", reason=reason.name)
            assert reason.meaning.endswith(".")
            assert "|" not in reason.meaning
