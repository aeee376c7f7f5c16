"""Manifests that people start from are ones that the models, and so the API server, accept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetward_api.resources import CachePolicy, CachePurge, InferenceService, Resource, Tenant

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
KINDS: dict[str, type[Resource]] = {
    kind.__name__: kind for kind in (CachePolicy, CachePurge, InferenceService, Tenant)
}


def manifests() -> list[Any]:
    """Every object of our kinds in the examples, by file."""
    return [
        pytest.param(body, id=f"{file.relative_to(EXAMPLES)}-{number}")
        for file in sorted(EXAMPLES.rglob("*.yaml"))
        for number, body in enumerate(yaml.safe_load_all(file.read_text()))
        if body["kind"] in KINDS
    ]


@pytest.mark.parametrize("body", manifests())
def test_an_example_is_accepted(body: dict[str, Any]) -> None:
    generated = {**body["metadata"]}
    prefix = generated.pop("generateName", None)
    name = {"name": f"{prefix}x"} if prefix else {}
    KINDS[body["kind"]].parse({**body, "metadata": {**generated, **name}})


def test_every_kind_has_an_example() -> None:
    assert {param.values[0]["kind"] for param in manifests()} == set(KINDS)
