"""The story of `make up`, and isolation in numbers: paired prompts of two tenants."""

from __future__ import annotations

from e2e.figures.record import record
from e2e.tests.conftest import Demo
from e2e.tests.support import manifests
from e2e.tests.support.gateway import Gateway
from e2e.tests.support.kubectl import Cluster, condition
from e2e.tests.support.pairs import GROUP, Hits, count_hits
from e2e.tests.support.services import ready

_ROOMY = {"runner": "Simulated", "kvMemory": "512Mi", "maxModelLen": 4096}
"""Room for all blocks of a group of prompts of both tenants."""


def test_make_up_tells_its_story(demo: Demo, cluster: Cluster) -> None:
    assert "evidence" in demo.story
    service = cluster.find("fsvc", namespace="quickstart")[0]
    assert condition(service, "Ready")["status"] == "True"
    assert condition(service, "CachePolicyEnforced")["status"] == "True"
    assert service["status"]["model"]["digest"].startswith("sha256:")


def test_a_tenant_reads_its_own_cache_and_nobody_elses(
    demo: Demo, cluster: Cluster, full: bool
) -> None:
    pairs = 200 if full else GROUP
    found = count_hits(
        demo.tenant_a,
        demo.tenant_b,
        demo.model,
        pairs=pairs,
        cluster=cluster,
        namespace="quickstart",
    )
    if full:
        record("pairs-same-tenant-hits", found.same, "by usage, and engine counters agree")
        record("pairs-other-tenant-hits", found.other, "by usage, and engine counters agree")
    assert found == Hits(same=pairs, other=0)


def test_isolation_holds_between_many_at_once(
    cluster: Cluster, tenants: dict[str, Gateway], playground: str, full: bool
) -> None:
    pairs = 1000 if full else GROUP
    cluster.apply(
        manifests.policy("kept", namespace=playground, namespaceDefault=True),
        manifests.service(
            "paired",
            namespace=playground,
            engine=_ROOMY,
            resources={"cpu": "50m", "memory": "1Gi"},
        ),
    )
    ready(cluster, "paired", playground)
    found = count_hits(
        tenants["ada"],
        tenants["bob"],
        "paired",
        pairs=pairs,
        cluster=cluster,
        namespace=playground,
        clients=4,
    )
    if full:
        detail = f"{found.same} of {pairs} hit for their own tenant; 4 clients, simulated runner"
        record("pairs-at-once-cross-hits", found.other, detail)
    assert found == Hits(same=pairs, other=0)
