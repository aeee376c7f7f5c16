"""Cross-field rules, said once and checked twice: as CEL by the API server, as Python here.

A rule carries the CEL expression that goes into the CRD, the sentence its author reads, and the
same predicate in Python. The small constructors below write both from one description, so that
most rules cannot drift apart; a property test holds all of them to the same verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from fleetward_api.resources.names import to_api_name

JsonSchema: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule on a value.

    Attributes:
        cel: the expression for the API server; ``self`` is the value.
        message: what is wrong and what to do, one sentence without line breaks.
        holds: the same predicate on the Python value.
        field: Python name of the field that the message is about, "" for the value itself.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool]
    field: str = ""

    def to_schema(self) -> JsonSchema:
        """The entry of ``x-kubernetes-validations``."""
        entry: JsonSchema = {"rule": self.cel, "message": self.message}
        if self.field:
            entry["fieldPath"] = f".{to_api_name(self.field)}"
        return entry


@dataclass(frozen=True, slots=True)
class TransitionRule:
    """A rule on an update: ``oldSelf`` is the value before."""

    cel: str
    message: str
    holds: Callable[[Any, Any], bool]

    def to_schema(self) -> JsonSchema:
        """The entry of ``x-kubernetes-validations``."""
        return {"rule": self.cel, "message": self.message}


def absent(field: str, path: str, advice: str) -> Rule:
    """Refuses a field that isn't available yet; an empty list counts as absent.

    Args:
        field: Python name of an optional field (None or an empty tuple when absent).
        path: how the user knows it, for example ``spec.slo``.
        advice: what to do instead.
    """
    name = to_api_name(field)
    return Rule(
        cel=f"!has(self.{name})",
        message=f"{path} is not available yet: {advice}",
        holds=lambda value: getattr(value, field) is None,
        field=field,
    )


def empty(field: str, path: str, advice: str) -> Rule:
    """Refuses entries of a list that isn't available yet."""
    name = to_api_name(field)
    return Rule(
        cel=f"!has(self.{name}) || size(self.{name}) == 0",
        message=f"{path} is not available yet: {advice}",
        holds=lambda value: len(getattr(value, field)) == 0,
        field=field,
    )


def only(field: str, allowed: str | tuple[str, ...] | int, path: str, advice: str) -> Rule:
    """Refuses every value of a defaulted field but the ones that work today."""
    name = to_api_name(field)
    values = allowed if isinstance(allowed, tuple) else (allowed,)
    shown = " or ".join(str(value) for value in values)
    return Rule(
        cel=" || ".join(f"self.{name} == {_literal(value)}" for value in values),
        message=f"{path} other than {shown} is not available yet: {advice}",
        holds=lambda value: getattr(value, field) in values,
        field=field,
    )


def _literal(value: str | int) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)
