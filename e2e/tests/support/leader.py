"""The operator's leader: who it is, and kill -9 of its process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from e2e.tests.support.evidence import RELEASE
from e2e.tests.support.kubectl import Cluster, KubectlFailed


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
    pids = _processes_of(_pod_of(identity))
    assert pids, f"no process of {identity} found"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return identity


def replace_pod(cluster: Cluster, identity: str) -> None:
    """Delete a killed pod, so that the kubelet's back-off of its container does not add up."""
    cluster.delete("pod", _pod_of(identity), namespace=RELEASE)


def _pod_of(identity: str) -> str:
    return identity.split("_", 1)[0]


def _processes_of(pod: str) -> list[int]:
    """Processes of this cluster's pods that carry `POD_NAME=<pod>` and run the operator."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if f"POD_NAME={pod}".encode() in environment and b"fleetward-operator" in command:
            found.append(int(folder.name))
    return found
