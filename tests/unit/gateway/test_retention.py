"""A request's retention class may only be stricter than the tenant's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_gateway.admission.facts import PolicyFacts, RetentionLimits
from fleetward_gateway.admission.retention import (
    choose_class,
    is_within,
    narrowed,
    pick_policy,
)
from fleetward_gateway.problem import Problem

HOUR = 3_600_000
POLICY = PolicyFacts(
    "ns",
    "p",
    "u",
    "c",
    False,
    RetentionLimits(2, HOUR, 24 * HOUR),
    {
        "none": RetentionLimits(0),
        "short": RetentionLimits(1, 60_000, HOUR),
        "long": RetentionLimits(1, HOUR, 12 * HOUR),
        "plain": RetentionLimits(1),
    },
)

ttl = st.none() | st.integers(0, 10)
limits = st.builds(RetentionLimits, st.integers(0, 2), ttl, ttl)


@pytest.mark.parametrize(
    ("requested", "own", "chosen"),
    [
        ("", "", ""),
        ("", "long", "long"),
        ("", "unknown", "unknown"),
        ("short", "", "short"),
        ("short", "long", "short"),
        ("none", "short", "none"),
        ("none", "unknown", "none"),
        ("long", "plain", "long"),
        ("short", "short", "short"),
    ],
)
def test_stricter_or_equal_is_granted(requested: str, own: str, chosen: str) -> None:
    assert choose_class(requested, own, POLICY) == chosen


@pytest.mark.parametrize(
    ("requested", "own"),
    [("long", "short"), ("plain", "long"), ("short", "none"), ("long", "unknown"), ("nope", "")],
)
def test_wider_or_unknown_is_refused(requested: str, own: str) -> None:
    with pytest.raises(Problem) as caught:
        choose_class(requested, own, POLICY)
    assert caught.value.status == 400
    assert caught.value.param == "Fleetward-Retention-Class"


def test_without_a_policy_there_is_no_class_to_choose() -> None:
    with pytest.raises(Problem, match="it has none"):
        choose_class("short", "", None)


@given(limits, limits)
def test_narrowing_never_widens(a: RetentionLimits, b: RetentionLimits) -> None:
    both = narrowed(a, b)
    assert both == narrowed(b, a)
    assert is_within(both, a)
    assert is_within(both, b)
    assert narrowed(both, a) == both


@given(limits, limits, limits)
def test_within_is_an_order(a: RetentionLimits, b: RetentionLimits, c: RetentionLimits) -> None:
    assert is_within(a, a)
    if b.store and is_within(a, b) and is_within(b, c):
        assert is_within(a, c)


@given(limits.filter(lambda x: x.store > 0), limits)
def test_within_means_each_limit(a: RetentionLimits, b: RetentionLimits) -> None:
    def below(x: int | None, y: int | None) -> bool:
        return y is None or (x is not None and x <= y)

    expected = (
        a.store <= b.store
        and below(a.idle_ttl_ms, b.idle_ttl_ms)
        and below(a.max_ttl_ms, b.max_ttl_ms)
    )
    assert is_within(a, b) == expected


def test_a_service_gets_its_policy_else_the_oldest_default_of_its_namespace() -> None:
    def policy(namespace: str, name: str, created: str, *, default: bool) -> PolicyFacts:
        return PolicyFacts(namespace, name, f"u-{name}", created, default, RetentionLimits())

    young = policy("ns", "young", "2", default=True)
    old = policy("ns", "old", "1", default=True)
    named = policy("ns", "named", "0", default=False)
    elsewhere = policy("other", "named", "0", default=True)
    policies = [young, elsewhere, old, named]
    assert pick_policy(policies, namespace="ns", name="named") is named
    assert pick_policy(policies, namespace="ns", name="absent") is None
    assert pick_policy(policies, namespace="ns", name="") is old
    assert pick_policy([named], namespace="ns", name="") is None
