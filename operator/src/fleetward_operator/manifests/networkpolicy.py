"""Who may reach an engine: the gateway its API, the operator its admin port, scrapers metrics."""

from __future__ import annotations

from fleetward_operator.manifests.desired import DesiredService
from fleetward_operator.manifests.labels import child_metadata, engine_selector
from fleetward_operator.manifests.manifest import Manifest
from fleetward_operator.manifests.names import (
    ADMIN_PORT,
    COMPONENT_LABEL,
    GATEWAY_COMPONENT,
    METRICS_PORT,
    NAMESPACE_NAME_LABEL,
    OPERATOR_COMPONENT,
    PUBLIC_PORT,
)


def build_networkpolicy(desired: DesiredService) -> Manifest:
    """Default deny both ways; engines open no connection at all, so there is no egress rule."""
    release = desired.environment.release_namespace
    gateway = _release_pods(release, GATEWAY_COMPONENT)
    operator = _release_pods(release, OPERATOR_COMPONENT)
    scrapers = [_namespace(name) for name in desired.environment.scraper_namespaces]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": child_metadata(desired, desired.name),
        "spec": {
            "podSelector": {"matchLabels": engine_selector(desired.name)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                _rule([gateway], PUBLIC_PORT),
                _rule([operator], ADMIN_PORT),
                _rule([operator, *scrapers], METRICS_PORT),
            ],
        },
    }


def _release_pods(namespace: str, component: str) -> Manifest:
    """Peers: pods of one component of ours, in the release namespace only."""
    return {
        **_namespace(namespace),
        "podSelector": {
            "matchLabels": {
                COMPONENT_LABEL: component,
                "app.kubernetes.io/part-of": "fleetward",
            }
        },
    }


def _namespace(name: str) -> Manifest:
    return {"namespaceSelector": {"matchLabels": {NAMESPACE_NAME_LABEL: name}}}


def _rule(peers: list[Manifest], port: int) -> Manifest:
    return {"from": peers, "ports": [{"protocol": "TCP", "port": port}]}
