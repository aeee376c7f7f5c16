"""A purge from the outside: waiting for its end."""

from __future__ import annotations

from e2e.tests.support.kubectl import Cluster, Manifest, eventually


def ended(cluster: Cluster, name: str, *, within: float) -> Manifest:
    """Wait until a purge has ended; returns its status."""

    def _over() -> bool:
        phase = cluster.get("cpurge", name).get("status", {}).get("phase")
        return phase in {"Completed", "Incomplete"}

    eventually(_over, what=f"purge {name} ended", within=within)
    status: Manifest = cluster.get("cpurge", name)["status"]
    return status
