"""The operator as a process of its own, with the rights that the chart grants."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import yaml

from e2e.cluster.binaries import ensure_binaries
from e2e.cluster.settings import read_settings
from e2e.cluster.steps import Steps
from fleetward_kube.client import APPLY
from tests.support.cluster_facts import IMAGE
from tests.support.operator_world import World

REPOSITORY = Path(__file__).resolve().parents[2]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ClusterRole": RBAC + "/clusterroles",
    "ClusterRoleBinding": RBAC + "/clusterrolebindings",
    "Role": RBAC + "/namespaces/{}/roles",
    "RoleBinding": RBAC + "/namespaces/{}/rolebindings",
}


def chart_rights(release: str, keys: str) -> list[dict[str, Any]]:
    """The operator's account, roles and bindings as the chart writes them."""
    helm = ensure_binaries(read_settings(), steps=Steps()).helm
    rendered = subprocess.run(
        [
            *(str(helm), "template", "fleetward", str(REPOSITORY / "charts/fleetward")),
            *("--namespace", release, "--set", f"apiKeys.namespace={keys}"),
            *("--show-only", "templates/operator/rbac.yaml"),
            *("--show-only", "templates/keynamespace.yaml"),
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [item for item in yaml.safe_load_all(rendered) if item and item["kind"] in PATHS]


async def grant(world: World) -> None:
    """Apply the chart's rights for the operator."""
    for manifest in chart_rights(world.release, world.keys):
        metadata = manifest["metadata"]
        path = PATHS[manifest["kind"]].format(metadata.get("namespace", ""))
        await world.client.request(
            "PATCH",
            f"{path}/{metadata['name']}",
            query={"fieldManager": "helm", "force": "true"},
            body=manifest,
            content_type=APPLY,
        )


@dataclass
class OperatorProcess:
    """One running process; `log` is what it wrote."""

    process: subprocess.Popen[bytes]
    health: int
    metrics: int
    log: Path
    _sink: IO[bytes]

    def kill(self) -> None:
        """Kill -9, as a node does that loses its mind."""
        self.process.kill()
        self.process.wait()
        self._sink.close()

    def stop(self) -> int:
        """SIGTERM, as a rollout does; the exit code."""
        self.process.terminate()
        code = self.process.wait(timeout=30)
        self._sink.close()
        return code


def operator_environment(
    world: World, *, kubeconfig: Path, ports: tuple[int, int], pod: str = "operator-0"
) -> dict[str, str]:
    """What one replica finds in its environment; `ports` are those of health and metrics."""
    health, metrics = ports
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(
            str(REPOSITORY / part) for part in ("crds/src", "operator/src")
        ),
        "KUBECONFIG": str(kubeconfig),
        "POD_NAME": pod,
        "POD_NAMESPACE": world.release,
        "POD_UID": pod,
        "FLEETWARD_KEY_NAMESPACE": world.keys,
        "FLEETWARD_ENGINE_IMAGE": IMAGE,
        "FLEETWARD_SERVICE_NAMESPACES": world.apps,
        "FLEETWARD_GATEWAY_URL": "http://gateway.test",
        "FLEETWARD_HEALTH_PORT": str(health),
        "FLEETWARD_METRICS_PORT": str(metrics),
        "FLEETWARD_MEMBER_ADMIN_PORT": str(world.admin_port),
    }


def start_process(
    world: World, *, kubeconfig: Path, ports: tuple[int, int], log: Path, pod: str = "operator-0"
) -> OperatorProcess:
    """Start the operator's program as the service account of a kubeconfig."""
    health, metrics = ports
    environment = operator_environment(world, kubeconfig=kubeconfig, ports=ports, pod=pod)
    sink = log.open("ab")
    process = subprocess.Popen(
        [sys.executable, "-W", "error::RuntimeWarning", "-m", "fleetward_operator"],
        env=environment,
        stdout=sink,
        stderr=subprocess.STDOUT,
    )
    return OperatorProcess(process, health, metrics, log, sink)
