"""What every printed schema must have: bounds, words, rules that point at fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from fleetward_api.crd.definitions import DEFINITIONS, Definition, build_definition
from fleetward_api.crd.printing import print_definitions
from fleetward_api.crd.structural import UnprintableSchema, structural_schema

IDS = [each.plural for each in DEFINITIONS]
BYTES_ALLOWED = 96 * 1024


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema node below spec and status, with its path."""
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from nodes(each, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key], f"{path}[]")


def own_nodes(definition: Definition) -> list[tuple[str, dict[str, Any]]]:
    """The nodes that we print, those of the API server's own fields left out."""
    root = build_definition(definition)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return [
        (path, node)
        for path, node in nodes(root)
        if path not in {".metadata", ".kind", ".apiVersion"}
    ]


def fault(node: dict[str, Any]) -> str:
    """Which bound a node lacks, or nothing."""
    if "enum" in node:
        return ""
    if node.get("x-kubernetes-int-or-string"):
        return "" if {"maxLength", "pattern"} <= node.keys() else "length and pattern"
    wanted = {
        "string": {"maxLength"},
        "integer": {"minimum", "maximum"},
        "array": {"maxItems", "items", "x-kubernetes-list-type"},
        "boolean": set(),
        "object": {"maxProperties"} if "additionalProperties" in node else {"properties"},
    }
    return ", ".join(sorted(wanted[node["type"]] - node.keys()))


@pytest.mark.parametrize("definition", DEFINITIONS, ids=IDS)
def test_everything_is_bounded(definition: Definition) -> None:
    assert [(path, fault(node)) for path, node in own_nodes(definition) if fault(node)] == []


@pytest.mark.parametrize("definition", DEFINITIONS, ids=IDS)
def test_every_field_is_described(definition: Definition) -> None:
    bare = [
        path
        for path, node in own_nodes(definition)
        if not path.endswith("[]") and not node.get("description", "").endswith(".")
    ]
    assert bare == []


@pytest.mark.parametrize("definition", DEFINITIONS, ids=IDS)
def test_every_rule_has_words_and_points_at_a_field(definition: Definition) -> None:
    for path, node in own_nodes(definition):
        for rule in node.get("x-kubernetes-validations", []):
            assert rule["rule"], path
            assert 0 < len(rule["message"]) < 400, path
            assert "\n" not in rule["message"], path
            if "fieldPath" in rule:
                assert rule["fieldPath"][1:] in node["properties"], (path, rule)


@pytest.mark.parametrize("definition", DEFINITIONS, ids=IDS)
def test_lists_of_objects_have_keys_that_their_entries_require(definition: Definition) -> None:
    for path, node in own_nodes(definition):
        if node.get("x-kubernetes-list-type") == "map":
            assert set(node["x-kubernetes-list-map-keys"]) <= set(node["items"]["required"]), path


def test_each_file_stays_small() -> None:
    sizes = {name: len(text.encode()) for name, text in print_definitions().items()}
    assert {name: size for name, size in sizes.items() if size > BYTES_ALLOWED} == {}


def test_short_names_and_scopes() -> None:
    assert {each.plural: (each.short_name, each.scope) for each in DEFINITIONS} == {
        "inferenceservices": ("fsvc", "Namespaced"),
        "cachepolicies": ("cpol", "Namespaced"),
        "tenants": ("ften", "Cluster"),
        "cachepurges": ("cpurge", "Cluster"),
    }


def test_what_a_structural_schema_cannot_say_is_refused() -> None:
    class Odd(BaseModel):
        choice: int | list[str]

    class Pair(BaseModel):
        pair: tuple[int, str]

    with pytest.raises(UnprintableSchema, match="prefixItems"):
        structural_schema(Pair)
    with pytest.raises(UnprintableSchema, match="anyOf"):
        structural_schema(Odd)
