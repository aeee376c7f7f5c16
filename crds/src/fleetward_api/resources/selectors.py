"""Label selectors, with the meaning that Kubernetes gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field

from fleetward_api.resources.base import ApiModel
from fleetward_api.resources.lists import Atomic
from fleetward_api.resources.rules import Rule
from fleetward_api.resources.scalars import Check, LabelOperator

LABEL_KEY_PATTERN = (
    r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
_LABEL_KEY = re.compile(LABEL_KEY_PATTERN[:-1] + r"\Z")
_LONGEST_KEY = 317
LabelKey: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=_LONGEST_KEY, pattern=LABEL_KEY_PATTERN)
]
LabelValue: TypeAlias = Annotated[
    str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")
]


def _drop_nulls(value: object) -> object:
    # The API server prunes nulls inside maps before it validates.
    if isinstance(value, Mapping):
        return {key: entry for key, entry in value.items() if entry is not None}
    return value


LabelMap: TypeAlias = Annotated[
    dict[str, LabelValue],
    Field(max_length=32),
    BeforeValidator(_drop_nulls),
    Check(
        Rule(
            cel=f"self.all(key, size(key) <= {_LONGEST_KEY} && key.matches('{LABEL_KEY_PATTERN}'))",
            message="write label keys such as team or example.com/team",
            holds=lambda labels: all(
                len(key) <= _LONGEST_KEY and _LABEL_KEY.match(key) for key in labels
            ),
        )
    ),
]


class LabelRequirement(ApiModel):
    """One requirement on the labels of an object."""

    key: LabelKey
    """The label's key."""
    operator: LabelOperator
    """In and NotIn compare with `values`; Exists and DoesNotExist look at the key alone."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=64), Atomic()] = ()
    """The values to compare with: at least one for In and NotIn, none otherwise."""

    rules = (
        Rule(
            cel=(
                "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)"
            ),
            message=("give values to In and NotIn, and none to Exists and DoesNotExist"),
            holds=lambda self: (self.operator in ("In", "NotIn")) == (len(self.values) > 0),
        ),
    )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet this requirement (NotIn also holds where the key is absent)."""
        present = self.key in labels
        match self.operator:
            case "In":
                return present and labels[self.key] in self.values
            case "NotIn":
                return not present or labels[self.key] not in self.values
            case "Exists":
                return present
            case "DoesNotExist":
                return not present


class LabelSelector(ApiModel):
    """Selects objects by their labels; all parts must hold, an empty one takes all."""

    match_labels: LabelMap = Field(default={})
    """Labels that must be there with exactly these values."""
    match_expressions: Annotated[tuple[LabelRequirement, ...], Field(max_length=32), Atomic()] = ()
    """Further requirements; all must hold."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet every part of the selector."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            requirement.matches(labels) for requirement in self.match_expressions
        )
