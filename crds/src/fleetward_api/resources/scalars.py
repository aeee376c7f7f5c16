"""The scalar types of the resources: each bounded, each printing its own schema."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from fleetward_api.quantity import (
    DURATION_PATTERN,
    QUANTITY_PATTERN,
    parse_duration,
    quantity_fraction,
)
from fleetward_api.resources.rules import JsonSchema, Rule


@dataclass(frozen=True, slots=True)
class Check:
    """Puts a rule on a scalar, a list or a map (as pydantic metadata)."""

    rule: Rule

    def _run(self, value: Any) -> Any:  # any scalar passes through unchanged
        if not self.rule.holds(value):
            raise PydanticCustomError("rule", "{words}", {"words": self.rule.message})
        return value

    def __get_pydantic_core_schema__(
        self,
        source: Any,
        handler: GetCoreSchemaHandler,  # pydantic's own signature
    ) -> CoreSchema:
        """Runs after the type's own validation."""
        return core_schema.no_info_after_validator_function(self._run, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchema:
        """Adds the rule to the type's schema."""
        printed = dict(handler(schema))
        rules = [*printed.get("x-kubernetes-validations", []), self.rule.to_schema()]
        return {**printed, "x-kubernetes-validations": rules}


@dataclass(frozen=True, slots=True)
class IntOrString:
    """Marks a value that may be a whole number or text (``x-kubernetes-int-or-string``)."""

    pattern: str
    max_length: int

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchema:
        """The schema that Kubernetes prescribes for such values."""
        inner = handler(schema)
        rules = {k: v for k, v in inner.items() if k == "x-kubernetes-validations"}
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": self.pattern,
            "maxLength": self.max_length,
            **rules,
        }


def _quantity_bounds(low: str, high: str) -> Check:
    least, most = quantity_fraction(low), quantity_fraction(high)
    return Check(
        Rule(
            cel=(
                f"quantity(string(self)).compareTo(quantity('{low}')) >= 0"
                f" && quantity(string(self)).compareTo(quantity('{high}')) <= 0"
            ),
            message=f"write an amount from {low} to {high}",
            holds=lambda value: (
                (isinstance(value, str) or value >= 0) and least <= quantity_fraction(value) <= most
            ),
        )
    )


def _duration_bounds(low: str, high: str) -> Check:
    least, most = parse_duration(low), parse_duration(high)
    return Check(
        Rule(
            cel=f"duration(self) >= duration('{low}') && duration(self) <= duration('{high}')",
            message=f"write a duration from {low} to {high}",
            holds=lambda value: least <= parse_duration(value) <= most,
        )
    )


def _is_moment(value: str) -> bool:
    try:
        dt.datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


_QuantityText: TypeAlias = Annotated[str, Field(pattern=QUANTITY_PATTERN, max_length=22)]
_DurationText: TypeAlias = Annotated[str, Field(pattern=DURATION_PATTERN, max_length=32)]
_QUANTITY = IntOrString(pattern=QUANTITY_PATTERN, max_length=22)

CpuAmount: TypeAlias = Annotated[int | _QuantityText, _quantity_bounds("1m", "1024"), _QUANTITY]
MemoryAmount: TypeAlias = Annotated[int | _QuantityText, _quantity_bounds("1Mi", "64Ti"), _QUANTITY]
Duration: TypeAlias = Annotated[_DurationText, _duration_bounds("1ms", "87600h")]
"""From a millisecond to ten years; bounds of a single field come as a rule of its own."""
LongDuration: TypeAlias = Annotated[_DurationText, _duration_bounds("1s", "87600h")]

ShortText: TypeAlias = Annotated[str, Field(min_length=1, max_length=128)]
MessageText: TypeAlias = Annotated[str, Field(max_length=4096)]
LabelName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
]
"""An RFC 1123 label: names of keys, retention classes, port-like things."""
ObjectName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
]
"""The name of another Kubernetes object."""
Digest: TypeAlias = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$", max_length=71)]
Moment: TypeAlias = Annotated[
    str,
    Field(
        max_length=20,
        pattern=(
            r"^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
            r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$"
        ),
    ),
    Check(
        Rule(
            cel="timestamp(self) == timestamp(self)",
            message="write a moment that exists, in UTC, for example 2027-01-31T00:00:00Z",
            holds=_is_moment,
        )
    ),
]
WHOLE = Check(
    Rule(
        cel="int(self) == self",
        message="write a whole number without a decimal point",
        holds=lambda value: isinstance(value, int),
    )
)
"""Put on the integers of specs: without a rule the API server takes 2.0 for 2 in some fields, and
refuses it in those that another rule reads."""
Percent: TypeAlias = Annotated[int, Field(ge=0, le=100), WHOLE]
Count: TypeAlias = Annotated[int, Field(ge=0, le=2_147_483_647)]
BigCount: TypeAlias = Annotated[int, Field(ge=0, le=9_007_199_254_740_991)]
"""Bytes and generations: whole numbers that JSON keeps exact."""
ReplicaCount: TypeAlias = Annotated[int, Field(ge=0, le=1000), WHOLE]
LabelOperator: TypeAlias = Literal["In", "NotIn", "Exists", "DoesNotExist"]
