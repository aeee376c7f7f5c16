"""Who may reach operator and gateway: nobody, but for what is listed."""

from __future__ import annotations

import pytest

from tests.support.chart import Chart, Manifest, named, of_kind


def ports_of(rule: Manifest) -> set[int]:
    """Port numbers of a NetworkPolicy rule."""
    return {port["port"] for port in rule["ports"]}


@pytest.mark.parametrize("part", ["operator", "gateway"])
def test_each_part_has_a_policy_for_both_directions(rendered: list[Manifest], part: str) -> None:
    policy = named(rendered, "NetworkPolicy", f"fleetward-{part}")["spec"]
    deployment = named(rendered, "Deployment", f"fleetward-{part}")["spec"]
    assert policy["podSelector"]["matchLabels"] == deployment["selector"]["matchLabels"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}


def test_nobody_reaches_the_operator(rendered: list[Manifest]) -> None:
    assert not named(rendered, "NetworkPolicy", "fleetward-operator")["spec"].get("ingress")


def test_only_the_public_port_of_the_gateway_is_open_to_all(rendered: list[Manifest]) -> None:
    rules = named(rendered, "NetworkPolicy", "fleetward-gateway")["spec"]["ingress"]
    assert [ports_of(rule) for rule in rules if not rule.get("from")] == [{8080}]
    (inner,) = [rule for rule in rules if rule.get("from")]
    assert ports_of(inner) == {8001, 9090}
    (peer,) = inner["from"]
    assert "namespaceSelector" not in peer  # this namespace only
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "operator"


def test_the_gateway_calls_engines_and_the_api_server_only(rendered: list[Manifest]) -> None:
    rules = named(rendered, "NetworkPolicy", "fleetward-gateway")["spec"]["egress"]
    assert [ports_of(rule) for rule in rules if not rule.get("to")] == [{443, 6443}]
    (engines,) = [rule for rule in rules if rule.get("to")]
    assert ports_of(engines) == {8000}
    assert engines["to"][0]["podSelector"]["matchLabels"] == {
        "app.kubernetes.io/part-of": "fleetward",
        "app.kubernetes.io/component": "engine",
    }


def test_scrapers_reach_the_metrics_port_only(chart: Chart) -> None:
    rendered = chart.render({"metrics": {"scraperNamespaces": ["monitoring", "ops"]}})
    for part in ("operator", "gateway"):
        rules = named(rendered, "NetworkPolicy", f"fleetward-{part}")["spec"]["ingress"]
        (scrapers,) = [
            rule
            for rule in rules
            if any("namespaceSelector" in peer for peer in rule.get("from", ()))
        ]
        assert ports_of(scrapers) == {9090}
        (expression,) = scrapers["from"][0]["namespaceSelector"]["matchExpressions"]
        assert expression["values"] == ["monitoring", "ops"]
    operator = named(rendered, "Deployment", "fleetward-operator")["spec"]["template"]["spec"]
    environment = {each["name"]: each.get("value") for each in operator["containers"][0]["env"]}
    assert environment["FLEETWARD_SCRAPER_NAMESPACES"] == "monitoring,ops"


def test_policies_can_be_left_to_others(chart: Chart) -> None:
    rendered = chart.render({"networkPolicy": {"enabled": False}})
    assert of_kind(rendered, "NetworkPolicy") == []


def test_a_node_port_is_fixed_only_where_there_is_one(chart: Chart) -> None:
    def port(service: dict[str, object]) -> Manifest:
        rendered = chart.render({"gateway": {"service": service}})
        found: Manifest = named(rendered, "Service", "fleetward-gateway")["spec"]["ports"][0]
        return found

    assert port({"type": "NodePort", "nodePort": 30080})["nodePort"] == 30080
    assert "nodePort" not in port({"type": "ClusterIP", "nodePort": 30080})
    assert "nodePort" not in port({"type": "NodePort"})
