"""The condition, as Kubernetes conventions shape it, and how one is described."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from fleetward_api.resources.base import ApiModel
from fleetward_api.resources.lists import KeyedBy
from fleetward_api.resources.scalars import BigCount

KindName: TypeAlias = Literal["InferenceService", "CachePolicy", "Tenant", "CachePurge"]
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


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason and what it means to the person who reads it."""

    name: str
    meaning: str


@dataclass(frozen=True, slots=True)
class ConditionType:
    """One condition of one kind: its question, and the reasons for each answer."""

    kind: KindName
    type: str
    question: str
    when_true: tuple[Reason, ...]
    when_false: tuple[Reason, ...]
    when_unknown: tuple[Reason, ...] = ()

    def reasons(self, status: ConditionStatus) -> tuple[Reason, ...]:
        """The reasons that may stand beside this status."""
        match status:
            case "True":
                return self.when_true
            case "False":
                return self.when_false
            case "Unknown":
                return self.when_unknown
