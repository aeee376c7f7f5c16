"""The pod template of an engine: restricted Pod Security, no cluster DNS, no API token."""

from __future__ import annotations

from fleetward_operator.manifests.container import build_engine_container
from fleetward_operator.manifests.desired import DesiredService
from fleetward_operator.manifests.labels import service_labels
from fleetward_operator.manifests.manifest import Manifest
from fleetward_operator.manifests.names import ENGINE_UID, TOKEN_AUDIENCE, trust_name

# Drain ends when the last stream does; this is the hard cap (docs/operator.md).
GRACE_S = 180
TOKEN_LIFETIME_S = 3600


def build_pod_template(desired: DesiredService) -> Manifest:
    """Pod template of the service's Deployment.

    Nothing in it depends on the operator's version or on the cache policy, so neither an upgrade
    nor a policy change restarts an engine.
    """
    spec: Manifest = {
        "serviceAccountName": desired.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "dnsPolicy": "Default",
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": ENGINE_UID,
            "runAsGroup": ENGINE_UID,
            "fsGroup": ENGINE_UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [build_engine_container(desired)],
        "volumes": _volumes(desired),
    }
    if desired.shape.node_selector:
        spec["nodeSelector"] = dict(desired.shape.node_selector)
    if desired.shape.tolerations:
        spec["tolerations"] = [dict(one) for one in desired.shape.tolerations]
    if desired.shape.priority_class:
        spec["priorityClassName"] = desired.shape.priority_class
    environment = desired.environment
    if environment.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in environment.pull_secrets]
    if desired.shape.accelerated and environment.accelerator_runtime_class:
        spec["runtimeClassName"] = environment.accelerator_runtime_class
    return {"metadata": {"labels": service_labels(desired.name)}, "spec": spec}


def _volumes(desired: DesiredService) -> list[Manifest]:
    token = {
        "audience": TOKEN_AUDIENCE,
        "expirationSeconds": TOKEN_LIFETIME_S,
        "path": "token",
    }
    volumes: list[Manifest] = [
        {"name": "trust", "configMap": {"name": trust_name(desired.name)}},
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}},
        {"name": "tmp", "emptyDir": {}},
    ]
    if desired.claim is not None:
        source = {"claimName": desired.claim.claim, "readOnly": True}
        volumes.append({"name": "models", "persistentVolumeClaim": source})
    return volumes
