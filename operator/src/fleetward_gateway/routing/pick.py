"""Filter, score, pick. Only the picker is random, by the generator it is given."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from fleetward_gateway.routing.endpoints import Endpoint


def filter_endpoints(
    endpoints: Sequence[Endpoint], *, tried: AbstractSet[str], suspects: AbstractSet[str]
) -> list[Endpoint]:
    """Endpoints not tried yet; suspects only when nothing else is left."""
    fresh = [endpoint for endpoint in endpoints if endpoint.uid not in tried]
    return [endpoint for endpoint in fresh if endpoint.uid not in suspects] or fresh


def score_load(in_flight: int) -> float:
    """1 for an idle engine, falling towards 0 with each request in flight."""
    return 1.0 / (1 + max(0, in_flight))


def pick_endpoint(
    endpoints: Sequence[Endpoint], *, in_flight: Mapping[str, int], rng: random.Random
) -> Endpoint | None:
    """The best-scored endpoint, ties broken at random; None when there is none.

    Without the random tie-break every gateway would send its first request to the same engine.
    """
    if not endpoints:
        return None
    scores = [score_load(in_flight.get(endpoint.uid, 0)) for endpoint in endpoints]
    best = max(scores)
    tied = [e for e, score in zip(endpoints, scores, strict=True) if score == best]
    return tied[0] if len(tied) == 1 else rng.choice(tied)
