"""The engine container: command, environment, probes, mounts and its hardening."""

from __future__ import annotations

from fleetward_operator.manifests.desired import DesiredService
from fleetward_operator.manifests.manifest import Manifest
from fleetward_operator.manifests.names import (
    ADMIN_PORT,
    ENGINE_CONTAINER,
    METRICS_PORT,
    MODELS_MOUNT,
    PUBLIC_PORT,
    TOKEN_MOUNT,
    TRUST_MOUNT,
)

# A 70B model from a slow disk takes most of an hour; the kubelet must not give up on it.
STARTUP_PERIOD_S = 1
STARTUP_FAILURES = 3600


def build_engine_container(desired: DesiredService) -> Manifest:
    """The one container of an engine pod."""
    resources: Manifest = {}
    if desired.shape.requests:
        resources["requests"] = dict(desired.shape.requests)
    if desired.shape.limits:
        resources["limits"] = dict(desired.shape.limits)
    return {
        "name": ENGINE_CONTAINER,
        "image": desired.image,
        "imagePullPolicy": desired.environment.pull_policy,
        "command": ["fleetward-engine"],
        "args": ["serve", *desired.engine_args],
        "env": _environment(desired),
        "ports": [
            {"name": "http", "containerPort": PUBLIC_PORT, "protocol": "TCP"},
            {"name": "admin", "containerPort": ADMIN_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        "resources": resources,
        "startupProbe": _probe("/ready", period=STARTUP_PERIOD_S, failures=STARTUP_FAILURES),
        "readinessProbe": _probe("/ready", period=5, failures=2),
        # The engine itself waits 45 s for progress before it says no: 60 s in all.
        "livenessProbe": _probe("/health", period=5, failures=2),
        "lifecycle": {"preStop": {"exec": {"command": ["fleetward-engine", "drain"]}}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        # A crash's last words reach the service's status through the kubelet.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(desired),
    }


def _environment(desired: DesiredService) -> list[Manifest]:
    """Identity of the pod, by the downward API, and of its service."""
    fields = {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_UID": "metadata.uid",
        "POD_IP": "status.podIP",
    }
    downward = [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in fields.items()
    ]
    return [
        *downward,
        {"name": "FLEETWARD_SERVICE", "value": f"{desired.namespace}/{desired.name}"},
        {"name": "FLEETWARD_SERVICE_UID", "value": desired.uid},
    ]


def _probe(path: str, *, period: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _mounts(desired: DesiredService) -> list[Manifest]:
    mounts: list[Manifest] = [
        {"name": "trust", "mountPath": TRUST_MOUNT, "readOnly": True},
        {"name": "token", "mountPath": TOKEN_MOUNT, "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own emptyDir
    ]
    if desired.claim is not None:
        mounts.append({"name": "models", "mountPath": MODELS_MOUNT, "readOnly": True})
    return mounts
