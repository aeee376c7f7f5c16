"""The cluster from an empty state, the release on it, and tenants to call it with."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import openai
import pytest

from e2e.chaos.scale import is_full
from e2e.cluster.paths import cluster_paths
from e2e.cluster.settings import read_settings
from e2e.figures.record import record
from e2e.tests.support import manifests
from e2e.tests.support.gateway import Gateway
from e2e.tests.support.kubectl import Cluster, eventually
from e2e.tests.support.services import ENGINES

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Demo:
    """What `make up` leaves in `.local/env`."""

    url: str
    model: str
    tenant_a: Gateway
    tenant_b: Gateway
    story: str


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether figures are measured in full (`make bench-cluster`, `make chaos`)."""
    return is_full()


def _demo(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (
        f"{arguments} failed:\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    )
    return done.stdout


@pytest.fixture(scope="session")
def story() -> Iterator[str]:
    """The output of `make up` on a cluster without history; the demo comes back at the end.

    With `FLEETWARD_KEEP_CLUSTER=1` the running cluster is used as it is: for writing tests.
    """
    if os.environ.get("FLEETWARD_KEEP_CLUSTER") != "1":
        _demo("e2e.cluster", "down")
    yield _demo("e2e.demo", "up")
    started = time.monotonic()
    _demo("e2e.demo", "up")
    record("demo-back-seconds", round(time.monotonic() - started, 1), "after the tests")


@pytest.fixture(scope="session")
def cluster(story: str) -> Cluster:
    """The local cluster with the release on it."""
    paths = cluster_paths(read_settings(os.environ))
    return Cluster(
        program=(str(paths.bin / "kubectl"),),
        kubeconfig=paths.admin_kubeconfig,
        audit_log=paths.audit_log,
    )


@pytest.fixture(scope="session")
def demo(story: str) -> Demo:
    """The quickstart's service and its two tenants."""
    lines = (_ROOT / ".local/env").read_text().splitlines()
    pairs = (line.removeprefix("export ").split("=", 1) for line in lines if "=" in line)
    env = {name: value.strip("'\"") for name, value in pairs}
    url = env["FLEETWARD_URL"]
    return Demo(
        url=url,
        model=env["FLEETWARD_MODEL"],
        tenant_a=Gateway(url, env["FLEETWARD_KEY_A"]),
        tenant_b=Gateway(url, env["FLEETWARD_KEY_B"]),
        story=story,
    )


@pytest.fixture(scope="session")
def tenants(cluster: Cluster, demo: Demo) -> dict[str, Gateway]:
    """Two tenants of the team that the tests' services admit, and one of another team."""
    found = {}
    for name, team in (("ada", manifests.TEAM), ("bob", manifests.TEAM), ("eve", "strangers")):
        key = f"fw-{secrets.token_urlsafe(24)}"
        cluster.apply(*manifests.tenant(name, key, team=team))
        found[name] = Gateway(demo.url, key)
    return found


@pytest.fixture(scope="module")
def _module_namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"e2e-{Path(request.path).stem.removeprefix('test_').replace('_', '-')}"
    cluster.apply(manifests.namespace(name))
    yield name
    # Its pods first: while one lives, Kubernetes looks at a namespace again only after half of
    # the pod's grace period, and an engine's is long.
    eventually(
        lambda: not cluster.find("pods", namespace=name, labels=ENGINES),
        what="engines gone",
        within=60,
    )
    cluster.delete("namespace", name)
    eventually(
        lambda: not cluster.exists("namespace", name), what=f"namespace {name} gone", within=120
    )


@pytest.fixture
def playground(cluster: Cluster, _module_namespace: str) -> Iterator[str]:
    """A namespace for one module's tests; what a test made in it goes at the test's end."""
    yield _module_namespace
    kinds = "fsvc,cpol,pods"
    cluster.run("delete", kinds, "--all", "-n", _module_namespace, "--wait=false")


@pytest.fixture(scope="session")
def demo_url(demo: Demo) -> str:
    """Where the gateway answers."""
    return demo.url


@pytest.fixture(scope="session")
def demo_model(demo: Demo) -> str:
    """The quickstart's served name."""
    return demo.model


@pytest.fixture(scope="session")
def demo_key(demo: Demo) -> str:
    """Tenant A's key."""
    return demo.tenant_a.key


@pytest.fixture(scope="session")
def demo_client(demo: Demo) -> openai.OpenAI:
    """The official client as tenant A, without retries, so that first answers are seen."""
    return openai.OpenAI(base_url=f"{demo.url}/v1", api_key=demo.tenant_a.key, max_retries=0)
