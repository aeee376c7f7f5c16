"""Label selectors mean what they mean in Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleetward_api.resources import LabelRequirement, LabelSelector
from tests.support.strategies import labels, selectors

KEY, OTHER = {"team": "red"}, {"team": "blue"}


@pytest.mark.parametrize(
    ("operator", "values", "red", "blue", "none"),
    [
        ("In", ("red",), True, False, False),
        ("NotIn", ("red",), False, True, True),
        ("Exists", (), True, True, False),
        ("DoesNotExist", (), False, False, True),
    ],
)
def test_operators(
    operator: Any, values: tuple[str, ...], *, red: bool, blue: bool, none: bool
) -> None:
    requirement = LabelRequirement(key="team", operator=operator, values=values)
    assert [requirement.matches(each) for each in (KEY, OTHER, {})] == [red, blue, none]


@given(labels)
def test_an_empty_selector_takes_everything(own: dict[str, str]) -> None:
    assert LabelSelector().matches(own)


@given(labels, st.data())
def test_some_of_its_own_labels_always_match(own: dict[str, str], data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.sampled_from(sorted(own)))) if own else set()
    assert LabelSelector(match_labels={key: own[key] for key in chosen}).matches(own)


@given(selectors(), labels)
def test_all_parts_must_hold(body: dict[str, Any], own: dict[str, str]) -> None:
    try:
        whole = LabelSelector.model_validate(body)
    except ValidationError:
        return
    parts = [
        *(LabelSelector(match_labels={key: value}) for key, value in whole.match_labels.items()),
        *(LabelSelector(match_expressions=(each,)) for each in whole.match_expressions),
    ]
    assert whole.matches(own) == all(part.matches(own) for part in parts)
