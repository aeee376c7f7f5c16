"""A policy changed live: acknowledged by every engine, in effect, and no pod restarted."""

from __future__ import annotations

import time

from e2e.tests.support import manifests
from e2e.tests.support.gateway import Gateway
from e2e.tests.support.kubectl import Cluster, condition, eventually
from e2e.tests.support.services import pods_of, ready, restarts_and_names

_PROMPT = "the same long prompt, word for word, " * 20


def test_a_policy_change_reaches_engines_without_a_restart(
    cluster: Cluster, tenants: dict[str, Gateway], playground: str
) -> None:
    cluster.apply(
        manifests.policy("live", namespace=playground),
        manifests.service(
            "governed", namespace=playground, replicas=2, cachePolicyRef={"name": "live"}
        ),
    )
    ready(cluster, "governed", playground)
    before = restarts_and_names(pods_of(cluster, "governed", playground))
    # Either engine may be picked, so the second asking need not find what the first one left.
    assert any(tenants["ada"].cached_tokens("governed", _PROMPT) > 0 for _ in range(20))

    brief = {"idleTTL": "1s", "maxTTL": "1s"}
    cluster.apply(manifests.policy("live", namespace=playground, retention=brief))
    generation = cluster.get("cpol", "live", namespace=playground)["metadata"]["generation"]

    def _enforced() -> bool:
        service = cluster.get("fsvc", "governed", namespace=playground)
        policy = service["status"]["cachePolicy"]
        enforced = condition(service, "CachePolicyEnforced").get("status") == "True"
        return bool(enforced and policy["generation"] == generation)

    eventually(_enforced, what="the new generation is enforced", within=60)
    time.sleep(2.5)  # longer than the new TTL
    assert tenants["ada"].cached_tokens("governed", _PROMPT) == 0
    assert restarts_and_names(pods_of(cluster, "governed", playground)) == before
