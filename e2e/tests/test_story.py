"""The story of `make up`, and isolation in numbers: paired prompts of two tenants."""

from __future__ import annotations

import secrets

from e2e.figures.record import record
from e2e.tests.conftest import Demo
from e2e.tests.support.gateway import Gateway
from e2e.tests.support.kubectl import Cluster, condition
from e2e.tests.support.metrics import prefix_hits

WORDS = 70
"""Random words in a prompt: well over four blocks of tokens, and unlike any other prompt's."""
GROUP = 20
"""Pairs between two looks at the engines' counters; the pool holds both tenants' blocks of them."""


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
    same = other = 0
    for _ in range(0, pairs, GROUP):
        prompts = [" ".join(secrets.token_hex(2) for _ in range(WORDS)) for _ in range(GROUP)]
        assert _cached(demo.tenant_a, demo.model, prompts) == [0] * GROUP
        before = prefix_hits(cluster, "quickstart")
        again = _cached(demo.tenant_a, demo.model, prompts)
        between = prefix_hits(cluster, "quickstart")
        theirs = _cached(demo.tenant_b, demo.model, prompts)
        after = prefix_hits(cluster, "quickstart")
        assert between - before == sum(again), "usage and the engines' counters disagree"
        assert after - between == sum(theirs), "usage and the engines' counters disagree"
        same += sum(1 for cached in again if cached > 0)
        other += sum(1 for cached in theirs if cached > 0)
    if full:
        record("pairs-same-tenant-hits", same, "by usage, and engine counters agree")
        record("pairs-other-tenant-hits", other, "by usage, and engine counters agree")
    assert (same, other) == (pairs, 0)


def _cached(gateway: Gateway, model: str, prompts: list[str]) -> list[int]:
    """Cached tokens of each prompt, asked one after another."""
    return [_cached_of_one(gateway, model, prompt) for prompt in prompts]


def _cached_of_one(gateway: Gateway, model: str, prompt: str) -> int:
    answer = gateway.post(
        {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0},
        path="/v1/completions",
    )
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    assert usage["prompt_tokens"] >= 4 * 32
    return int(usage["prompt_tokens_details"]["cached_tokens"])
