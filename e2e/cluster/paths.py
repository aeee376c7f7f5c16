"""Where everything of the local cluster lies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.settings import Settings

CHECKOUT = Path(__file__).resolve().parents[2]
RUN = Path("/run/fleetward-cluster")
"""Sockets, containerd's runtime state, process records, the owner file: one per machine.

A short path on purpose: a socket's path may have 107 bytes, and a checkout's path may be long.
"""


@dataclass(frozen=True, slots=True)
class Paths:
    """The folders and files of the full cluster of one checkout."""

    checkout: Path
    state: Path
    cache: Path
    run: Path

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def config(self) -> Path:
        return self.state / "config"

    @property
    def bin(self) -> Path:
        return self.state / "bin"

    @property
    def kubelet_root(self) -> Path:
        return self.state / "kubelet"

    @property
    def lone_api_server(self) -> Path:
        """Default folder of an API server that runs alone."""
        return self.checkout / ".local" / "apiserver"

    @property
    def admin_kubeconfig(self) -> Path:
        return self.state / "admin.kubeconfig"

    @property
    def audit_log(self) -> Path:
        return self.state / "audit.log"

    @property
    def containerd_root(self) -> Path:
        """Images; kept between clusters, outside the checkout."""
        return self.cache / "containerd"

    @property
    def containerd_state(self) -> Path:
        return self.run / "containerd"

    @property
    def containerd_socket(self) -> Path:
        return self.run / "containerd.sock"

    @property
    def pids(self) -> Path:
        return self.run / "pids"

    @property
    def owner(self) -> Path:
        """Names the checkout whose cluster runs (or half runs) on this machine."""
        return self.run / "owner"

    @property
    def machine_before(self) -> Path:
        """What the machine's network and kernel settings were before the first ``up``."""
        return self.run / "machine-before.json"


def cluster_paths(settings: Settings, *, checkout: Path = CHECKOUT) -> Paths:
    """The paths of the cluster of ``checkout``."""
    state = checkout / ".local" / "cluster"
    return Paths(checkout=checkout, state=state, cache=settings.cache, run=RUN)
