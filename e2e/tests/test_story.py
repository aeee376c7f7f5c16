"""The story of `make up`, and isolation in numbers: paired prompts of two tenants."""

from __future__ import annotations

import secrets

from e2e.figures.record import record
from e2e.tests.conftest import Demo
from e2e.tests.support.gateway import Gateway
from e2e.tests.support.kubectl import Cluster, condition
from e2e.tests.support.metrics import prefix_hits

WORDS = 160
"""Random words in a prompt: well over four blocks of tokens, and unlike any other prompt's."""


def test_make_up_tells_its_story(demo: Demo, cluster: Cluster) -> None:
    assert "evidence" in demo.story
    service = cluster.find("fsvc", namespace="quickstart")[0]
    assert condition(service, "Ready")["status"] == "True"
    assert condition(service, "CachePolicyEnforced")["status"] == "True"
    assert service["status"]["model"]["digest"].startswith("sha256:")


def test_a_tenant_reads_its_own_cache_and_nobody_elses(
    demo: Demo, cluster: Cluster, full: bool
) -> None:
    pairs = 200 if full else 20
    same = other = 0
    for _ in range(pairs):
        prompt = " ".join(secrets.token_hex(2) for _ in range(WORDS))
        assert _cached(demo.tenant_a, demo.model, prompt) == 0
        before = prefix_hits(cluster, "quickstart")
        by_usage = _cached(demo.tenant_a, demo.model, prompt)
        between = prefix_hits(cluster, "quickstart")
        same += by_usage > 0 and between - before == by_usage
        by_usage = _cached(demo.tenant_b, demo.model, prompt)
        other += by_usage > 0 or prefix_hits(cluster, "quickstart") > between
    if full:
        record("pairs-same-tenant-hits", same, "usage and engine counters agree on each")
        record("pairs-other-tenant-hits", other, "by usage or by engine counters")
    assert (same, other) == (pairs, 0)


def _cached(gateway: Gateway, model: str, prompt: str) -> int:
    answer = gateway.post(
        {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0},
        path="/v1/completions",
    )
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    assert usage["prompt_tokens"] >= 4 * 32
    return int(usage["prompt_tokens_details"]["cached_tokens"])
