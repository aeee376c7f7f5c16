"""The operator's leader: who it is, and kill -9 of its process."""

from __future__ import annotations

import signal

from e2e.tests.support.evidence import RELEASE
from e2e.tests.support.kubectl import Cluster, KubectlFailed
from e2e.tests.support.processes import send

OPERATOR = "fleetward-operator"


def leader(cluster: Cluster) -> str:
    """The identity that holds the lease, `<pod>_<process>`, or "" when nobody does."""
    try:
        lease = cluster.get("lease", "fleetward-operator", namespace=RELEASE)
    except KubectlFailed:
        return ""
    return str(lease["spec"].get("holderIdentity") or "")


def kill_leader(cluster: Cluster) -> str:
    """Kill -9 the leading pod's operator process; returns the identity that led."""
    identity = leader(cluster)
    assert identity, "nobody leads"
    assert kill_operator(_pod_of(identity)), f"no process of {identity} found"
    return identity


def kill_operator(pod: str) -> int:
    """Kill -9 the operator's processes in one of its pods; how many there were."""
    return send(pod, OPERATOR, signal.SIGKILL)


def replace_pod(cluster: Cluster, identity: str) -> None:
    """Delete a killed pod, so that the kubelet's back-off of its container does not add up."""
    cluster.delete("pod", _pod_of(identity), namespace=RELEASE)


def _pod_of(identity: str) -> str:
    return identity.split("_", 1)[0]
