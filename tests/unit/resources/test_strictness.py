"""The models are as strict as the API server with strict field validation."""

from __future__ import annotations

from typing import Any

import pytest

from fleetward_api.resources import CachePurge, InferenceService, InvalidResource, Tenant
from tests.support.refusals import MINIMAL
from tests.support.strategies import manifest


def service(**spec: Any) -> dict[str, Any]:
    """A minimal service with more in its spec."""
    return manifest(InferenceService, {**MINIMAL[InferenceService], **spec})


@pytest.mark.parametrize(
    "spec",
    [
        {"bogus": 1},
        {"bogus": None},
        {"engine": {"max_num_seqs": 8}},
        {"engine": {"maxNumSeqs": "8"}},
        {"engine": {"maxNumSeqs": True}},
        {"engine": {"prefixCaching": 1}},
        {"engine": []},
        {"replicas": 1.0},
        {"model": None},
        {"resources": {"tolerations": {}}},
        {"resources": {"tolerations": [None]}},
        {"access": {"tenantSelector": {"matchLabels": {"a": 1}}}},
    ],
)
def test_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(InvalidResource):
        InferenceService.parse(service(**spec))


@pytest.mark.parametrize(
    "spec",
    [
        {"engine": None},
        {"replicas": None},
        {"resources": {"tolerations": None, "nodeSelector": {"a": None}}},
    ],
)
def test_nulls_of_known_fields_count_as_absent(spec: dict[str, Any]) -> None:
    assert InferenceService.parse(service(**spec)) == InferenceService.parse(
        service(**({"resources": {}} if "resources" in spec else {}))
    )


def test_python_names_serve_python_only() -> None:
    assert InferenceService.parse(service(replicas=1)).spec.engine.max_num_seqs == 64


def test_entries_of_keyed_lists_are_distinct() -> None:
    key = {"name": "k", "secretRef": {"name": "s"}}
    with pytest.raises(InvalidResource, match="stands twice"):
        Tenant.parse(manifest(Tenant, {"apiKeys": [key, key]}))


def test_values_of_sets_are_distinct() -> None:
    model = {**MINIMAL[InferenceService]["model"], "aliases": ["a", "a"]}
    with pytest.raises(InvalidResource, match="stands twice"):
        InferenceService.parse(service(model=model))


@pytest.mark.parametrize("name", ["A", "1a", "a-", "a.b", "a" * 51])
def test_names_that_children_could_not_bear_are_refused(name: str) -> None:
    with pytest.raises(InvalidResource, match=r"metadata\.name must be at most 50"):
        InferenceService.parse({**service(), "metadata": {"name": name}})


def test_metadata_passes_unread() -> None:
    body = service() | {"metadata": {"name": "a", "managedFields": [{"manager": "x"}]}}
    assert InferenceService.parse(body).metadata.name == "a"


def test_a_purge_cannot_be_changed() -> None:
    old = CachePurge.parse(manifest(CachePurge, MINIMAL[CachePurge]))
    old.check_update(old)
    new = CachePurge.parse(manifest(CachePurge, {**MINIMAL[CachePurge], "deadline": "2m"}))
    with pytest.raises(InvalidResource, match="create another CachePurge"):
        new.check_update(old)
