"""The one node of the cluster."""

from __future__ import annotations

from pathlib import Path

from e2e.cluster.addresses import KUBELET_HEALTH_PORT, KUBELET_PORT, NODE_ADDRESS, NODE_NAME
from e2e.cluster.configfile import write_json_config
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.errors import ClusterError
from e2e.cluster.health import http_ok
from e2e.cluster.paths import Paths
from e2e.cluster.processes import Program

LONGEST_SOCKET_PATH = 107
SYSTEMD_RESOLVED = Path("/run/systemd/resolve/resolv.conf")
"""Where systemd-resolved keeps the real name servers; its stub address works outside pods only."""


def build_config(plane: ControlPlane, *, pod_logs: Path, resolver: Path) -> dict[str, object]:
    """A KubeletConfiguration for a machine that one works on.

    cgroupfs and no swap check, since the machine is as it is; no storage isolation, which needs
    quotas; images are never collected, since many exist nowhere else.
    """
    pki = plane.pki
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "port": KUBELET_PORT,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": KUBELET_HEALTH_PORT,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki / "kubelet.crt"),
        "tlsPrivateKeyFile": str(pki / "kubelet.key"),
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
        "serializeImagePulls": False,
        "nodeStatusUpdateFrequency": "4s",
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "maxPods": 200,
        "podLogsDir": str(pod_logs),
        "resolvConf": str(resolver),
        "enableControllerAttachDetach": False,
    }


def kubelet(paths: Paths, plane: ControlPlane) -> Program:
    """Write the configuration and describe the program."""
    socket = paths.kubelet_root / "pod-resources" / "kubelet.sock"
    if len(bytes(socket)) > LONGEST_SOCKET_PATH:
        raise ClusterError(
            f"the path of this checkout is too long for the kubelet's socket ({socket}: more than "
            f"{LONGEST_SOCKET_PATH} bytes): move the checkout to a shorter path"
        )
    resolver = SYSTEMD_RESOLVED if SYSTEMD_RESOLVED.exists() else Path("/etc/resolv.conf")
    document = build_config(plane, pod_logs=paths.logs / "pods", resolver=resolver)
    config = write_json_config(plane.config, "kubelet.json", document)
    argv = plane.command(
        "kubelet",
        config=config,
        root_dir=paths.kubelet_root,
        cert_dir=paths.kubelet_root / "pki",
        kubeconfig=paths.config / "kubelet.kubeconfig",
        container_runtime_endpoint=f"unix://{paths.containerd_socket}",
        hostname_override=NODE_NAME,
        node_ip=NODE_ADDRESS,
    )
    return Program("kubelet", argv, healthy=lambda: http_ok(KUBELET_HEALTH_PORT, "/healthz"))


def node_ready(plane: ControlPlane) -> bool:
    """Whether the node says Ready and has its share of the pod addresses."""
    node = plane.client.read(f"/api/v1/nodes/{NODE_NAME}")
    return node is not None and is_ready(node)


def is_ready(node: dict[str, object]) -> bool:
    """The same for a node object."""
    spec, status = node.get("spec"), node.get("status")
    if not isinstance(spec, dict) or not isinstance(status, dict) or not spec.get("podCIDR"):
        return False
    conditions = status.get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
