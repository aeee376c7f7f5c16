"""List types of the Kubernetes API: keyed lists of objects, sets, and lists replaced as a whole."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from fleetward_api.resources.names import to_api_name
from fleetward_api.resources.rules import JsonSchema


@dataclass(frozen=True, slots=True)
class KeyedBy:
    """A list of objects in which one field tells the entries apart (list type ``map``)."""

    field: str

    def __get_pydantic_core_schema__(
        self,
        source: Any,
        handler: GetCoreSchemaHandler,  # pydantic's own signature
    ) -> CoreSchema:
        """Refuses two entries with one key."""
        return _as_tuple(handler(source), key=lambda item: getattr(item, self.field))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchema:
        """Names the list type and its key."""
        return {
            **handler(schema),
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": [to_api_name(self.field)],
        }


@dataclass(frozen=True, slots=True)
class DistinctValues:
    """A list of scalars, each at most once (list type ``set``)."""

    def __get_pydantic_core_schema__(
        self,
        source: Any,
        handler: GetCoreSchemaHandler,  # pydantic's own signature
    ) -> CoreSchema:
        """Refuses a value that stands twice."""
        return _as_tuple(handler(source), key=lambda item: item)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchema:
        """Names the list type."""
        return {**handler(schema), "x-kubernetes-list-type": "set"}


@dataclass(frozen=True, slots=True)
class Atomic:
    """A list that is replaced as a whole (list type ``atomic``)."""

    def __get_pydantic_core_schema__(
        self,
        source: Any,
        handler: GetCoreSchemaHandler,  # pydantic's own signature
    ) -> CoreSchema:
        """Takes a JSON list."""
        return _as_tuple(handler(source), key=None)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchema:
        """Names the list type."""
        return {**handler(schema), "x-kubernetes-list-type": "atomic"}


def _as_tuple(inner: CoreSchema, *, key: Any) -> CoreSchema:  # callable or None
    def from_list(value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    def distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
        seen: set[Hashable] = set()
        for value in values:
            if key(value) in seen:
                raise PydanticCustomError(
                    "duplicate", "{key} stands twice: keep one of them", {"key": repr(key(value))}
                )
            seen.add(key(value))
        return values

    as_tuple = core_schema.no_info_before_validator_function(from_list, inner)
    if key is None:
        return as_tuple
    return core_schema.no_info_after_validator_function(distinct, as_tuple)
