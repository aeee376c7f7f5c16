"""Addresses, names and ports of the full cluster.

All addresses come from 198.18.0.0/15, the range that RFC 2544 sets aside for benchmarking, so that
they clash with no home, office or cloud network.
"""

from __future__ import annotations

NODE_NAME = "fleetward-local"
NODE_ADDRESS = "198.18.255.1"
"""An address of our own on the service bridge: the cluster does not care which networks the machine
joins or leaves."""

POD_RANGE = "198.18.0.0/24"
SERVICE_RANGE = "198.19.0.0/24"
FIRST_SERVICE_ADDRESS = "198.19.0.1"
CLUSTER_RANGE = "198.18.0.0/15"

POD_BRIDGE = "kube-pods"
SERVICE_BRIDGE = "kube-svc"
CNI_NETWORK = "fleetward"

API_PORT = 16443
ETCD_PORT = 16379
ETCD_PEER_PORT = 16380
KUBELET_PORT = 10250
KUBELET_HEALTH_PORT = 10248
PROXY_HEALTH_PORT = 10256
PROXY_METRICS_PORT = 10249
CONTROLLER_MANAGER_PORT = 10257
SCHEDULER_PORT = 10259
FIREWALL_HEALTH_PORT = 20244

PORTS = (
    API_PORT,
    ETCD_PORT,
    ETCD_PEER_PORT,
    KUBELET_PORT,
    KUBELET_HEALTH_PORT,
    PROXY_HEALTH_PORT,
    PROXY_METRICS_PORT,
    CONTROLLER_MANAGER_PORT,
    SCHEDULER_PORT,
    FIREWALL_HEALTH_PORT,
)
"""Must be free before the first start."""
