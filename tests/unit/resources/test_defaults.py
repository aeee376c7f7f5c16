"""The defaults in the schema are those of the models."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.resources import CachePolicySpec, InvalidResource, Resource
from tests.support.refusals import MINIMAL
from tests.support.strategies import KINDS, manifest, spec_schema, specs


def with_defaults(value: Any, schema: dict[str, Any]) -> Any:
    """What the API server makes of a value: absent fields get their defaults, then theirs."""
    if isinstance(value, list):
        return [with_defaults(each, schema["items"]) for each in value]
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    filled = dict(value)
    for name, each in schema["properties"].items():
        if name not in filled and "default" in each:
            filled[name] = copy.deepcopy(each["default"])
        if name in filled:
            filled[name] = with_defaults(filled[name], each)
    return filled


def without_empty(value: Any) -> Any:
    """Absent and empty lists, maps and objects mean the same."""
    if isinstance(value, list):
        return [without_empty(each) for each in value]
    if not isinstance(value, dict):
        return value
    cleaned = {key: without_empty(each) for key, each in value.items()}
    return {key: each for key, each in cleaned.items() if each not in ([], {})}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_of_a_minimal_spec(kind: type[Resource]) -> None:
    parsed = kind.parse(manifest(kind, MINIMAL[kind])).spec.to_manifest()
    assert without_empty(parsed) == without_empty(with_defaults(MINIMAL[kind], spec_schema(kind)))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_of_any_valid_spec(kind: type[Resource], data: st.DataObject) -> None:
    spec = data.draw(specs(kind))
    try:
        parsed = kind.parse(manifest(kind, spec))
    except InvalidResource:
        return
    assert without_empty(parsed.spec.to_manifest()) == without_empty(
        with_defaults(spec, spec_schema(kind))
    )
    # What was printed reads back as the same value.
    assert kind.parse(manifest(kind, parsed.spec.to_manifest())).spec == parsed.spec


def test_a_policy_that_says_nothing_still_bounds_everything() -> None:
    policy = CachePolicySpec()
    assert (policy.isolation, policy.retention.idle_ttl, policy.retention.max_ttl) == (
        "Tenant",
        "30m",
        "24h",
    )
    assert policy.deletion.scrub
