"""The condition, as Kubernetes conventions shape it."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from fleetward_api.resources.base import ApiModel
from fleetward_api.resources.lists import KeyedBy
from fleetward_api.resources.scalars import BigCount

ConditionStatus: TypeAlias = Literal["True", "False", "Unknown"]


class Condition(ApiModel):
    """One aspect of a resource's state, as Kubernetes conventions shape it."""

    type: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Z][A-Za-z0-9]*$")]
    """What the condition speaks of."""
    status: ConditionStatus
    """Whether it holds."""
    reason: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Z][A-Za-z0-9]*$")]
    """Why, as one word for machines."""
    message: Annotated[str, Field(max_length=4096)] = ""
    """Why, as a sentence for people."""
    last_transition_time: Annotated[str, Field(max_length=32)] = ""
    """When the status last changed (UTC)."""
    observed_generation: BigCount | None = None
    """metadata.generation that the condition speaks of."""


Conditions: TypeAlias = Annotated[tuple[Condition, ...], Field(max_length=16), KeyedBy("type")]
