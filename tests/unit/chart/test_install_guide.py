"""docs/install.md: what a reader copies from it is valid, and what it lists is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from e2e.chaos.steps import STEPS
from fleetward_api.crd.definitions import DEFINITIONS
from fleetward_api.resources import CachePolicy, InferenceService, Resource, Tenant
from tests.support.chart import CHECKOUT, Chart, named

GUIDE = (CHECKOUT / "docs/install.md").read_text()
KINDS: dict[str, type[Resource]] = {
    "InferenceService": InferenceService,
    "CachePolicy": CachePolicy,
    "Tenant": Tenant,
}


def blocks(language: str) -> list[str]:
    """The guide's code blocks in one language."""
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def manifests() -> Iterator[dict[str, Any]]:
    """Objects of the guide."""
    for block in blocks("yaml"):
        yield from (each for each in yaml.safe_load_all(block) if "kind" in each)


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    """The guide's example of chart values, with a digest for the reader's."""
    (found,) = [block for block in blocks("yaml") if block.startswith("# values-mine.yaml")]
    text = found.replace("sha256:…", "sha256:" + "a" * 64)
    parsed: dict[str, Any] = yaml.safe_load(text)
    return parsed


def test_its_values_are_the_charts(chart: Chart, values: dict[str, Any]) -> None:
    rendered = chart.render(values)
    rules = named(rendered, "PrometheusRule", "fleetward")["spec"]["groups"][0]["rules"]
    told = re.findall(r"`(Fleetward[A-Z]\w+)`", GUIDE)
    assert sorted(told) == sorted(rule["alert"] for rule in rules)


def test_its_objects_are_valid() -> None:
    found = list(manifests())
    assert {each["kind"] for each in found} == set(KINDS)
    for each in found:
        KINDS[each["kind"]].parse(each)


def test_its_objects_fit_together() -> None:
    by_kind = {each["kind"]: each for each in manifests()}
    service = by_kind["InferenceService"]
    selector = service["spec"]["access"]["tenantSelector"]["matchLabels"]
    assert selector.items() <= by_kind["Tenant"]["metadata"]["labels"].items()
    assert service["spec"]["cachePolicyRef"]["name"] == by_kind["CachePolicy"]["metadata"]["name"]
    assert by_kind["Tenant"]["spec"]["apiKeys"][0]["secretRef"]["name"] in "\n".join(blocks("sh"))


def test_it_names_every_definition_to_delete_and_steps_that_exist() -> None:
    for definition in DEFINITIONS:
        assert definition.name in GUIDE
    for step in re.findall(r"make chaos ONLY=(\S+?)`", GUIDE):
        assert step in {each.name for each in STEPS}


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([\w/.-]+)\)", GUIDE):
        assert (CHECKOUT / "docs" / target).exists(), target
