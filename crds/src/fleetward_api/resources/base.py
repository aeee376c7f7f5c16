"""The base of every model of a resource: strict as the API server's strict field validation.

Nulls of known fields count as absent (the API server prunes them before defaulting), unknown
fields are refused, nothing is coerced, and the model's rules run after its fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

from fleetward_api.resources.names import to_api_name
from fleetward_api.resources.rules import JsonSchema, Rule, TransitionRule


class ApiModel(BaseModel):
    """A part of a resource; frozen, camelCase on the wire, snake_case in Python."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        alias_generator=to_api_name,
        validate_by_alias=True,
        validate_by_name=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()
    transition_rules: ClassVar[tuple[TransitionRule, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls_of_known_fields(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        known = {str(field.alias) for field in cls.model_fields.values()}
        return {key: value for key, value in data.items() if value is not None or key not in known}

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        broken = [rule for rule in type(self).rules if not rule.holds(self)]
        if broken:
            words = "; ".join(rule.message for rule in broken)
            raise PydanticCustomError("rule", "{words}", {"words": words})
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchema:
        """The model's JSON schema with its rules."""
        schema = handler(core_schema)
        own = handler.resolve_ref_schema(schema)
        rules = [rule.to_schema() for rule in cls.rules]
        rules += [rule.to_schema() for rule in cls.transition_rules]
        if rules:
            own["x-kubernetes-validations"] = rules
        return schema

    def to_manifest(self) -> dict[str, Any]:
        """The value as it stands in a manifest: camelCase, absent fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
