"""Paired prompts of two tenants: what each reads from cache, by usage and by engine counters."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from e2e.tests.support.gateway import Gateway
from e2e.tests.support.kubectl import Cluster
from e2e.tests.support.metrics import prefix_hits

WORDS = 70
"""Random words in a prompt: well over four blocks of tokens, and unlike any other prompt's."""
GROUP = 20
"""Pairs between two looks at the engines' counters; the pool holds both tenants' blocks of them."""


@dataclass(frozen=True, slots=True)
class Hits:
    """How many prompts read cached tokens: asked again by their tenant, asked by the other one."""

    same: int
    other: int


def count_hits(
    first: Gateway,
    other: Gateway,
    model: str,
    *,
    pairs: int,
    cluster: Cluster,
    namespace: str,
    clients: int = 1,
) -> Hits:
    """Ask each prompt twice as one tenant and once as another; usage and counters must agree."""
    same = crossed = 0
    for _ in range(0, pairs, GROUP):
        prompts = [" ".join(secrets.token_hex(2) for _ in range(WORDS)) for _ in range(GROUP)]
        assert _cached(first, model, prompts, clients) == [0] * GROUP
        before = prefix_hits(cluster, namespace)
        again = _cached(first, model, prompts, clients)
        between = prefix_hits(cluster, namespace)
        theirs = _cached(other, model, prompts, clients)
        after = prefix_hits(cluster, namespace)
        assert between - before == sum(again), "usage and the engines' counters disagree"
        assert after - between == sum(theirs), "usage and the engines' counters disagree"
        same += sum(1 for cached in again if cached > 0)
        crossed += sum(1 for cached in theirs if cached > 0)
    return Hits(same, crossed)


def _cached(gateway: Gateway, model: str, prompts: Sequence[str], clients: int) -> list[int]:
    """Cached tokens of each prompt."""
    with ThreadPoolExecutor(max_workers=clients) as pool:
        return list(pool.map(lambda prompt: _cached_of_one(gateway, model, prompt), prompts))


def _cached_of_one(gateway: Gateway, model: str, prompt: str) -> int:
    answer = gateway.post(
        {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0},
        path="/v1/completions",
    )
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    assert usage["prompt_tokens"] >= 4 * 32
    return int(usage["prompt_tokens_details"]["cached_tokens"])
