"""What makes Services and NetworkPolicies work: kube-proxy and kube-router's firewall."""

from __future__ import annotations

from pathlib import Path

from e2e.cluster.addresses import (
    FIREWALL_HEALTH_PORT,
    NODE_ADDRESS,
    NODE_NAME,
    POD_RANGE,
    PROXY_HEALTH_PORT,
    PROXY_METRICS_PORT,
    SERVICE_RANGE,
)
from e2e.cluster.configfile import write_json_config
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.health import http_ok
from e2e.cluster.processes import Program

FIREWALL_USER = "system:kube-router"


def build_proxy_config(plane: ControlPlane) -> dict[str, object]:
    """The iptables mode; NodePorts answer on this machine only.

    ``conntrack`` zeros mean: leave the machine's own limits and timeouts as they are.
    """
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "bindAddress": NODE_ADDRESS,
        "hostnameOverride": NODE_NAME,
        "clusterCIDR": POD_RANGE,
        "nodePortAddresses": ["127.0.0.0/8", f"{NODE_ADDRESS}/32"],
        "healthzBindAddress": f"127.0.0.1:{PROXY_HEALTH_PORT}",
        "metricsBindAddress": f"127.0.0.1:{PROXY_METRICS_PORT}",
        "clientConnection": {"kubeconfig": str(plane.config / "kube-proxy.kubeconfig")},
        "conntrack": {
            "maxPerCore": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "iptables": {"localhostNodePorts": True, "minSyncPeriod": "100ms"},
    }


def kube_proxy(plane: ControlPlane) -> Program:
    """Service addresses and NodePorts."""
    config = write_json_config(plane.config, "kube-proxy.json", build_proxy_config(plane))
    argv = plane.command("kube-proxy", config=config)
    return Program("kube-proxy", argv, healthy=lambda: http_ok(PROXY_HEALTH_PORT, "/healthz"))


def kube_router(binary: Path, plane: ControlPlane) -> Program:
    """NetworkPolicies and nothing else of kube-router."""
    flags = {
        "run-router": "false",
        "run-firewall": "true",
        "run-service-proxy": "false",
        "run-loadbalancer": "false",
        "enable-cni": "false",
        "kubeconfig": plane.config / "kube-router.kubeconfig",
        "hostname-override": NODE_NAME,
        "service-cluster-ip-range": SERVICE_RANGE,
        "health-port": FIREWALL_HEALTH_PORT,
        "iptables-sync-period": "1m0s",
    }
    return Program(
        "kube-router",
        (str(binary), *(f"--{name}={value}" for name, value in flags.items())),
        healthy=lambda: http_ok(FIREWALL_HEALTH_PORT, "/healthz"),
        extra_environment=(("NODE_NAME", NODE_NAME),),
    )


def build_firewall_access() -> list[dict[str, object]]:
    """RBAC for kube-router: it reads what decides who may talk to whom, and writes nothing."""
    name = "fleetward-local:kube-router"
    group = "rbac.authorization.k8s.io"
    rules: list[dict[str, object]] = [
        {
            "apiGroups": [""],
            "resources": ["pods", "namespaces", "services", "nodes", "endpoints"],
            "verbs": ["get", "list", "watch"],
        },
        {
            "apiGroups": ["networking.k8s.io"],
            "resources": ["networkpolicies"],
            "verbs": ["get", "list", "watch"],
        },
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["get", "list", "watch"],
        },
    ]
    role: dict[str, object] = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    }
    binding: dict[str, object] = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": FIREWALL_USER}],
    }
    return [role, binding]
