"""Values: bad ones are refused by name before anything is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.chart import (
    CHART,
    CHECKOUT,
    RELEASE_NAMESPACE,
    Chart,
    ChartRefused,
    named,
    of_kind,
)


@pytest.mark.parametrize(
    ("values", "named_in_message"),
    [
        ({"gatway": {"replicas": 3}}, "gatway"),
        ({"gateway": {"replicas": -1}}, "replicas"),
        ({"gateway": {"replicas": "two"}}, "replicas"),
        ({"gateway": {"service": {"type": "ExternalName"}}}, "type"),
        ({"gateway": {"service": {"nodePort": 70000}}}, "nodePort"),
        ({"gateway": {"publicURL": "fleetward.example"}}, "publicURL"),
        ({"gateway": {"drainSeconds": 0}}, "drainSeconds"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"image": {"repository": "fleetward/operator:1.2"}}, "repository"),
        ({"image": {"digest": "sha256:abc"}}, "digest"),
        ({"engine": {"allowedImages": ["a,b"]}}, "allowedImages"),
        ({"engine": {"allowedNamespaces": []}}, "allowedNamespaces"),
        ({"apiKeys": {"namespace": "Keys!"}}, "namespace"),
        ({"networkPolicy": {"apiServerPorts": []}}, "apiServerPorts"),
        ({"operator": {"replicas": 2, "leaderElection": False}}, "leaderElection"),
    ],
)
def test_bad_values_are_refused_by_name(
    chart: Chart, values: dict[str, Any], named_in_message: str
) -> None:
    with pytest.raises(ChartRefused) as refused:
        chart.render(values)
    assert "values don't meet the specifications of the schema" in str(refused.value)
    assert named_in_message in str(refused.value)


def test_helm_finds_nothing_to_object_to(chart: Chart) -> None:
    assert chart.lint() == ""


def test_the_schema_knows_every_value_and_no_other() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    for path, known, given in walk(schema, schema, values, "values"):
        assert set(given) <= set(known), path
        # `global` is Helm's own; `claims` of resources is Kubernetes', and rarely wanted.
        assert set(known) - set(given) <= {"global", "claims"}, path


def walk(
    root: dict[str, Any], schema: dict[str, Any], values: Any, path: str
) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Every object of the values beside the properties that the schema gives it."""
    if "$ref" in schema:
        schema = root["definitions"][schema["$ref"].rpartition("/")[2]]
    if not isinstance(values, dict) or "properties" not in schema:
        return []
    assert schema["additionalProperties"] is False, path
    found = [(path, schema["properties"], values)]
    for name, value in values.items():
        found += walk(root, schema["properties"][name], value, f"{path}.{name}")
    return found


def test_api_keys_and_the_releases_own_keys_are_kept_apart(chart: Chart) -> None:
    with pytest.raises(ChartRefused, match="must not be the release's own"):
        chart.render({"apiKeys": {"namespace": RELEASE_NAMESPACE}})


def test_engine_rules_reach_the_operator(chart: Chart) -> None:
    rendered = chart.render(
        {
            "engine": {
                "allowedImages": ["reg.example/fleetward/*", "other:1"],
                "allowedNamespaces": ["a", "b"],
            }
        }
    )
    spec = named(rendered, "Deployment", "fleetward-operator")["spec"]["template"]["spec"]
    environment = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}
    assert environment["FLEETWARD_ENGINE_IMAGE_ALLOW"] == "reg.example/fleetward/*,other:1"
    assert environment["FLEETWARD_SERVICE_NAMESPACES"] == "a,b"
    assert environment["FLEETWARD_ENGINE_IMAGE"] == "fleetward/engine:0.1.0"
    gateway = named(rendered, "Deployment", "fleetward-gateway")["spec"]["template"]["spec"]
    assert {"name": "FLEETWARD_SERVICE_NAMESPACES", "value": "a,b"} in gateway["containers"][0][
        "env"
    ]


def test_what_holds_data_stays_when_the_release_goes(chart: Chart) -> None:
    rendered = chart.render()
    kept = of_kind(rendered, "CustomResourceDefinition", "Namespace")
    assert len(kept) == 5
    for manifest in kept:
        annotations = manifest["metadata"]["annotations"]
        assert annotations["helm.sh/resource-policy"] == "keep", manifest["metadata"]["name"]


def test_definitions_and_key_namespace_can_be_left_to_others(chart: Chart) -> None:
    values = {"crds": {"install": False}, "apiKeys": {"createNamespace": False}}
    assert of_kind(chart.render(values), "CustomResourceDefinition", "Namespace") == []


def test_definitions_are_the_printed_ones(chart: Chart) -> None:
    rendered = {
        each["metadata"]["name"]: each["spec"]
        for each in of_kind(chart.render(), "CustomResourceDefinition")
    }
    printed = [yaml.safe_load(file.read_text()) for file in (CHECKOUT / "crds").glob("*.yaml")]
    assert rendered == {each["metadata"]["name"]: each["spec"] for each in printed}


def test_the_local_values_are_valid(chart: Chart) -> None:
    local = yaml.safe_load(Path(CHECKOUT / "e2e/demo/values.yaml").read_text())
    service = named(chart.render(local), "Service", "fleetward-gateway")["spec"]
    assert service["type"] == "NodePort"
