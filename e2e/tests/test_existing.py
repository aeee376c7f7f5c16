"""`make up CLUSTER=existing`: the local cluster, used as if it were somebody else's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.cluster.steps import Steps
from e2e.demo.place import find_place
from e2e.figures.record import record
from e2e.tests.support.evidence import RELEASE
from e2e.tests.support.kubectl import Cluster, eventually

_ROOT = Path(__file__).resolve().parents[2]
_PLACE = find_place(steps=Steps(tell=lambda _line: None))


def _demo(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The demo's command with kubectl and helm on PATH, as an administrator has them."""
    programs = f"{_PLACE.paths.bin}:{Path(_PLACE.helm_program).parent}:{os.environ['PATH']}"
    kubeconfig = str(_PLACE.paths.admin_kubeconfig)
    return subprocess.run(
        [sys.executable, "-m", "e2e.demo", *words, "--cluster", "existing"],
        cwd=_ROOT,
        env={**os.environ, "PATH": programs, "KUBECONFIG": kubeconfig, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_somebody_else_made_is_left_alone(cluster: Cluster) -> None:
    before = cluster.get("deployment", "fleetward-gateway", namespace=RELEASE)
    refused = _demo("up", IMAGES="present")
    assert refused.returncode == 1
    assert "a namespace quickstart that this checkout did not make" in refused.stderr
    after = cluster.get("deployment", "fleetward-gateway", namespace=RELEASE)
    assert after["metadata"]["generation"] == before["metadata"]["generation"]


@pytest.mark.timeout(1800)
def test_the_whole_story_and_back(cluster: Cluster, full: bool) -> None:
    if not full:
        pytest.skip("in full only: it takes the release away from the other tests for minutes")
    _start_clean(cluster)
    try:
        told = _demo("up", IMAGES="present", VALUES=str(_ROOT / "e2e/demo/values.yaml"))
        assert told.returncode == 0, f"{told.stdout[-4000:]}\n{told.stderr[-2000:]}"
        assert "Forwarding" not in told.stdout
        gone = _demo("down")
        assert gone.returncode == 0, f"{gone.stdout[-4000:]}\n{gone.stderr[-2000:]}"
    finally:
        _demo_local()
    kept = "left: 4 definitions" in gone.stdout and "fleetward-system" in gone.stdout
    story = all(word in told.stdout for word in ("evidence verify", "everything is up"))
    record("existing-cluster-story", int(kept and story))
    assert kept
    assert story


def _start_clean(cluster: Cluster) -> None:
    """Neither release nor quickstart; the definitions stay, as on any cluster that had them."""
    cluster.delete("tenant", "tenant-a")
    cluster.delete("tenant", "tenant-b")
    cluster.delete("namespace", "quickstart")
    eventually(
        lambda: not cluster.exists("namespace", "quickstart"), what="quickstart gone", within=240
    )
    for tenant in ("tenant-a", "tenant-b"):
        eventually(
            lambda name=tenant: not cluster.exists("tenant", name),  # type: ignore[misc]
            what=f"{tenant} gone",
            within=240,
        )
    _PLACE.helm("uninstall", "fleetward", "--namespace", RELEASE, "--wait")


def _demo_local() -> None:
    """The release and the quickstart of the other tests come back."""
    subprocess.run([sys.executable, "-m", "e2e.demo", "up"], cwd=_ROOT, check=True)
