"""The kinds as a real API server serves them: names, words, defaults, subresources."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fleetward_api.crd.definitions import DEFINITIONS, Definition
from fleetward_api.resources import CachePurge, InferenceService, Resource
from tests.support.raw_api import RawApi
from tests.support.refusals import MINIMAL, REFUSALS
from tests.support.strategies import KINDS, manifest

GROUP = "/apis/fleetward.io/v1alpha1"
COLLECTIONS = {
    each.model: f"{GROUP}/namespaces/default/{each.plural}"
    if each.scope == "Namespaced"
    else f"{GROUP}/{each.plural}"
    for each in DEFINITIONS
}


@pytest.fixture
async def api(crds_installed: Path) -> AsyncIterator[RawApi]:
    """The API server, as its administrator."""
    async with RawApi.connect(crds_installed) as connected:
        yield connected


async def create(api: RawApi, kind: type[Resource], name: str, **spec: Any) -> dict[str, Any]:
    """Creates an object of the minimal spec and more; what was stored."""
    body = manifest(kind, {**MINIMAL[kind], **spec}, name=name)
    answer = await api.send("POST", COLLECTIONS[kind], body, fieldValidation="Strict")
    assert answer.status == 201, answer.message
    return answer.body


async def test_each_refusal_has_its_words(api: RawApi) -> None:
    for kind in KINDS:
        chosen = [refusal for refusal in REFUSALS if refusal.kind is kind]
        bodies = [manifest(kind, refusal.spec) for refusal in chosen]
        answers = await api.judge(COLLECTIONS[kind], bodies)
        for refusal, answer in zip(chosen, answers, strict=True):
            assert answer.status == 422, refusal
            assert refusal.words in answer.message, refusal


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_stored_defaults_read_back_as_the_models_own(
    api: RawApi, kind: type[Resource]
) -> None:
    stored = await create(api, kind, "defaults")
    parsed = kind.parse(stored)
    assert parsed.spec == kind.parse(manifest(kind, MINIMAL[kind])).spec
    assert parsed.metadata.uid == stored["metadata"]["uid"]


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda each: each.plural)
async def test_discovery_names(api: RawApi, definition: Definition) -> None:
    listed = (await api.send("GET", GROUP)).body["resources"]
    (found,) = [each for each in listed if each["name"] == definition.plural]
    assert found["shortNames"] == [definition.short_name]
    assert found["categories"] == ["fleetward"]
    assert found["namespaced"] == (definition.scope == "Namespaced")
    assert f"{definition.plural}/status" in {each["name"] for each in listed}


async def test_status_is_written_apart_from_the_spec(api: RawApi) -> None:
    await create(api, InferenceService, "apart")
    path = f"{COLLECTIONS[InferenceService]}/apart"
    body = {**manifest(InferenceService, {}, name="apart"), "status": {"message": "hello"}}
    del body["spec"]
    answer = await api.apply(f"{path}/status", body)
    assert answer.accepted, answer.message
    stored = (await api.send("GET", path)).body
    assert stored["status"] == {"message": "hello", "replicas": 0, "readyReplicas": 0}
    assert stored["metadata"]["generation"] == 1
    assert InferenceService.parse(stored).status.message == "hello"


async def test_a_status_out_of_bounds_is_refused(api: RawApi) -> None:
    await create(api, InferenceService, "bounds")
    path = f"{COLLECTIONS[InferenceService]}/bounds/status"
    body = {**manifest(InferenceService, {}, name="bounds"), "status": {"replicas": -1}}
    del body["spec"]
    answer = await api.apply(path, body)
    assert answer.status == 422
    assert "status.replicas" in answer.message


async def test_scale_works_in_external_mode_alone(api: RawApi) -> None:
    await create(api, InferenceService, "external", scaling={"mode": "External"})
    await create(api, InferenceService, "internal")
    for name, accepted in (("external", True), ("internal", False)):
        path = f"{COLLECTIONS[InferenceService]}/{name}/scale"
        scale = (await api.send("GET", path)).body
        scale["spec"]["replicas"] = 3
        answer = await api.send("PUT", path, scale)
        assert answer.accepted == accepted, answer.message
        if not accepted:
            assert "counts only with spec.scaling.mode External" in answer.message


async def test_scale_shows_replicas_and_selector_from_status(api: RawApi) -> None:
    await create(api, InferenceService, "selector", scaling={"mode": "External"})
    path = f"{COLLECTIONS[InferenceService]}/selector"
    body = manifest(InferenceService, {}, name="selector")
    del body["spec"]
    body["status"] = {"replicas": 2, "readyReplicas": 1, "selector": "a=b"}
    answer = await api.apply(f"{path}/status", body)
    assert answer.accepted, answer.message
    scale = (await api.send("GET", f"{path}/scale")).body
    assert scale["status"] == {"replicas": 2, "selector": "a=b"}


async def test_a_purge_cannot_be_changed(api: RawApi) -> None:
    stored = await create(api, CachePurge, "fixed")
    path = f"{COLLECTIONS[CachePurge]}/fixed"
    labelled = {**stored, "metadata": {**stored["metadata"], "labels": {"a": "b"}}}
    answer = await api.send("PUT", path, labelled)
    assert answer.accepted, answer.message
    changes: list[dict[str, Any]] = [{"reason": "other"}, {"tenant": "b"}, {"serviceSelector": {}}]
    for change in changes:
        changed = {**answer.body, "spec": {**stored["spec"], **change}}
        refused = await api.send("PUT", path, changed)
        assert refused.status == 422
        assert "create another CachePurge" in refused.message


async def test_services_are_found_by_the_model_they_serve(api: RawApi) -> None:
    model = {"name": "rare-model", "source": "package://p"}
    await create(api, InferenceService, "rare", model=model)
    found = await api.send(
        "GET", COLLECTIONS[InferenceService], fieldSelector="spec.model.name=rare-model"
    )
    assert [each["metadata"]["name"] for each in found.body["items"]] == ["rare"]


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda each: each.plural)
async def test_long_names_are_refused(api: RawApi, definition: Definition) -> None:
    kind = definition.model
    body = manifest(kind, MINIMAL[kind], name="a" * 64)
    (answer,) = await api.judge(COLLECTIONS[kind], [body])
    assert answer.status == 422
    assert "metadata.name must be at most" in answer.message
