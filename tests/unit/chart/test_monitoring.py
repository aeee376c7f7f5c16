"""Monitoring: off unless asked for, and no alert on a metric that does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from fleetward_engine.server import metrics as engine_metrics
from fleetward_gateway.metrics import Metrics as GatewayMetrics
from fleetward_operator.edges.metrics import Metrics as OperatorMetrics
from tests.support.chart import Chart, ChartRefused, Manifest, named, of_kind, pod_specs

MONITORED: dict[str, Any] = {
    "metrics": {
        "scraperNamespaces": ["monitoring"],
        "podMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prom"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prom"}},
    }
}
LABELS = {
    "fleetward_operator_reconciles_total": {"kind", "result"},
    "fleetward_gateway_requests_total": {"code", "model", "tenant"},
    "fleetward_gateway_config_objects_invalid": {"kind"},
    "fleetward_engine_leaks_total": {"kind"},
}


@pytest.fixture(scope="module")
def monitored(chart: Chart) -> list[Manifest]:
    return chart.render(MONITORED)


def exposed(registries: Iterable[CollectorRegistry]) -> set[str]:
    """Names under which a scraper sees the series of these registries."""
    families: list[Metric] = [family for registry in registries for family in registry.collect()]
    return {f"{each.name}_total" if each.type == "counter" else each.name for each in families}


def engine_counters() -> set[str]:
    """Names of the engine's counters, from its source: most show only while an engine runs."""
    text = Path(engine_metrics.__file__).read_text()
    return {f"{engine_metrics.PREFIX}{name}_total" for name in re.findall(r'["}]([a-z_]+)"', text)}


def rules(manifests: list[Manifest]) -> list[dict[str, Any]]:
    """The alerts."""
    (group,) = named(manifests, "PrometheusRule", "fleetward")["spec"]["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def test_nothing_of_it_is_there_unless_asked_for(rendered: list[Manifest]) -> None:
    assert of_kind(rendered, "PodMonitor", "PrometheusRule") == []


def test_every_alert_looks_at_metrics_that_exist(monitored: list[Manifest]) -> None:
    known = exposed([OperatorMetrics().registry, GatewayMetrics().registry]) | engine_counters()
    seen = set()
    for rule in rules(monitored):
        named_here = set(re.findall(r"\bfleetward_[a-z_]+", rule["expr"]))
        assert named_here, rule["alert"]
        assert named_here <= known, rule["alert"]
        seen |= named_here
    assert LABELS.keys() <= seen


def test_alerts_select_by_labels_that_the_metrics_have(monitored: list[Manifest]) -> None:
    for rule in rules(monitored):
        for metric, body in re.findall(r"(fleetward_[a-z_]+)\{([^}]*)\}", rule["expr"]):
            assert set(re.findall(r"(\w+)=", body)) <= LABELS[metric], rule["alert"]


def test_every_alert_says_what_it_means(monitored: list[Manifest]) -> None:
    names = [rule["alert"] for rule in rules(monitored)]
    assert len(set(names)) == len(names) >= 6
    for rule in rules(monitored):
        assert rule["alert"].startswith("Fleetward")
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert all(text.endswith(".") for text in rule["annotations"].values())


def test_the_monitor_finds_the_pods_by_their_labels_and_port(monitored: list[Manifest]) -> None:
    spec = named(monitored, "PodMonitor", "fleetward")["spec"]
    selected = spec["selector"]["matchLabels"]
    (endpoint,) = spec["podMetricsEndpoints"]
    assert endpoint["interval"] == "15s"
    for deployment in of_kind(monitored, "Deployment"):
        template = deployment["spec"]["template"]
        assert selected.items() <= template["metadata"]["labels"].items()
        ports = [port["name"] for port in template["spec"]["containers"][0]["ports"]]
        assert endpoint["port"] in ports


def test_the_administrators_labels_are_on_both(monitored: list[Manifest]) -> None:
    for manifest in of_kind(monitored, "PodMonitor", "PrometheusRule"):
        assert manifest["metadata"]["labels"]["release"] == "prom"


def test_a_monitor_whose_scraper_no_policy_lets_in_is_refused(chart: Chart) -> None:
    with pytest.raises(ChartRefused, match="scraperNamespaces"):
        chart.render({"metrics": {"podMonitor": {"enabled": True}}})


def test_pods_go_where_they_are_sent(chart: Chart) -> None:
    toleration = {"key": "infra", "operator": "Exists"}
    where = {"nodeSelector": {"pool": "infra"}, "tolerations": [toleration]}
    rendered = chart.render({"operator": where, "gateway": where, "imagePullSecrets": ["reg"]})
    for name, spec in pod_specs(rendered):
        assert spec["nodeSelector"] == {"pool": "infra"}, name
        assert spec["tolerations"] == [toleration], name
        assert spec["imagePullSecrets"] == [{"name": "reg"}], name


def test_the_age_of_proofs_alerts_only_where_they_are_repeated(chart: Chart) -> None:
    for interval, told in (("4h", True), ("0", False)):
        rendered = chart.render({**MONITORED, "operator": {"isolationProbeInterval": interval}})
        names = {rule["alert"] for rule in rules(rendered)}
        assert "FleetwardIsolationBroken" in names
        assert ("FleetwardIsolationNotProved" in names) is told
        assert ("FleetwardIsolationNeverProved" in names) is told
        spec = named(rendered, "Deployment", "fleetward-operator")["spec"]["template"]["spec"]
        environment = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}
        assert environment["FLEETWARD_ISOLATION_PROBE_INTERVAL"] == interval
    with pytest.raises(ChartRefused, match="isolationProbeInterval"):
        chart.render({"operator": {"isolationProbeInterval": "7h"}})


def test_engines_settings_reach_the_operator(chart: Chart) -> None:
    engine = {"imagePullSecrets": ["a", "b"], "acceleratorRuntimeClass": "nvidia"}
    rendered = chart.render({"engine": engine})
    spec = named(rendered, "Deployment", "fleetward-operator")["spec"]["template"]["spec"]
    environment = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}
    assert environment["FLEETWARD_ENGINE_IMAGE_PULL_SECRETS"] == "a,b"
    assert environment["FLEETWARD_ACCELERATOR_RUNTIME_CLASS"] == "nvidia"
