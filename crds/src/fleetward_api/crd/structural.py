"""Turns a model's JSON schema into a structural schema, the dialect of CustomResourceDefinitions.

Pydantic prints JSON Schema 2020-12; the API server wants OpenAPI v3 without references, without
unions with null and without ``additionalProperties: false``, each with defaults that it can apply.
Everything else (bounds, patterns, list types, CEL rules) passes through as the models print it.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel

from fleetward_api.resources.rules import JsonSchema

_ORDER: Final = (
    "description",
    "type",
    "x-kubernetes-int-or-string",
    "anyOf",
    "enum",
    "default",
    "minimum",
    "maximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
    "properties",
    "items",
    "additionalProperties",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
)


class UnprintableSchema(TypeError):
    """A model uses something that a structural schema cannot say."""


def structural_schema(model: type[BaseModel]) -> JsonSchema:
    """The structural schema of a model.

    Raises:
        UnprintableSchema: naming the keyword that has no place in such a schema.
    """
    printed = model.model_json_schema(by_alias=True, mode="validation")
    definitions = printed.pop("$defs", {})
    return _convert(printed, definitions)


def _convert(node: JsonSchema, definitions: dict[str, JsonSchema]) -> JsonSchema:
    node = _merge_reference(_without_null(node), definitions)
    out: JsonSchema = {}
    for key, value in node.items():
        match key:
            case "title":
                continue
            case "additionalProperties" if value is False:
                continue
            case "anyOf" if "x-kubernetes-int-or-string" not in node:
                raise UnprintableSchema(f"'anyOf' has no place in a structural schema: {node}")
            case "const":
                out["enum"] = [value]
            case "properties":
                out[key] = {name: _convert(each, definitions) for name, each in value.items()}
            case "items" | "additionalProperties":
                out[key] = _convert(value, definitions)
            case "default":
                out.update(_default(value, node))
            case "description":
                out[key] = " ".join(value.split())
            case _ if key in _ORDER:
                out[key] = value
            case _:
                raise UnprintableSchema(f"{key!r} has no place in a structural schema: {node}")
    return {key: out[key] for key in _ORDER if key in out}


def _without_null(node: JsonSchema) -> JsonSchema:
    """An optional field: the API server prunes nulls, so the schema speaks of the value alone."""
    branches = node.get("anyOf")
    if branches is None or {"type": "null"} not in branches:
        return node
    (value,) = [branch for branch in branches if branch != {"type": "null"}]
    rest = {key: each for key, each in node.items() if key != "anyOf"}
    return {**value, **rest}


def _merge_reference(node: JsonSchema, definitions: dict[str, JsonSchema]) -> JsonSchema:
    """What a reference points to; the field's own words go before the type's."""
    if "$ref" not in node:
        return node
    target = definitions[node["$ref"].removeprefix("#/$defs/")]
    return {**target, **{key: value for key, value in node.items() if key != "$ref"}}


def _default(value: Any, node: JsonSchema) -> JsonSchema:  # any JSON value
    """The default as the API server applies it.

    An absent list or map means an empty one already, so that none is written into anyone's spec.
    """
    if value is None or isinstance(value, list) or "additionalProperties" in _shape(node):
        return {}
    return {"default": _without_empty(value)}


def _without_empty(value: Any) -> Any:  # any JSON value
    # Spelled out in full: the API server holds rules against a default before it fills it in.
    if not isinstance(value, dict):
        return value
    return {key: _without_empty(each) for key, each in value.items() if each not in (None, [], {})}


def _shape(node: JsonSchema) -> set[str]:
    return {key for key, value in node.items() if value is not False}
