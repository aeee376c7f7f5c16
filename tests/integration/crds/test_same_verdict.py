"""Pydantic and the API server (strict field validation) agree about every generated spec."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from e2e.figures.record import record
from fleetward_api.resources import (
    CachePolicy,
    CachePurge,
    InferenceService,
    InvalidResource,
    Resource,
    Tenant,
)
from tests.support.raw_api import RawApi
from tests.support.refusals import REFUSALS, words_of_rules
from tests.support.strategies import changed_names, changed_specs, manifest, spec_schema

COMPARED: Counter[bool] = Counter()
"""Specs compared so far (True) and those judged differently (False)."""

PREFIX = "/apis/fleetward.io/v1alpha1"
PLANS: tuple[tuple[type[Resource], str, int, int], ...] = (
    (InferenceService, f"{PREFIX}/namespaces/default/inferenceservices", 2300, 1550),
    (CachePolicy, f"{PREFIX}/namespaces/default/cachepolicies", 1100, 650),
    (Tenant, f"{PREFIX}/tenants", 750, 500),
    (CachePurge, f"{PREFIX}/cachepurges", 600, 400),
)


def generate(kind: type[Resource], drawn: int) -> list[dict[str, Any]]:
    """The same manifests on every run: generated ones, each once, and the examples of refusals."""
    found: dict[str, dict[str, Any]] = {}

    @settings(
        max_examples=drawn,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(changed_specs(kind), changed_names())
    def collect(spec: Any, name: str) -> None:
        found[json.dumps([spec, name], sort_keys=True)] = manifest(kind, spec, name=name)

    collect()
    near = [manifest(kind, each.spec) for each in REFUSALS if each.kind is kind]
    return [*found.values(), *near]


def words_of_pydantic(kind: type[Resource], body: dict[str, Any]) -> tuple[str, ...]:
    """Why the models refuse the manifest, or nothing."""
    try:
        kind.parse(body)
    except InvalidResource as refusal:
        return tuple(fault.message for fault in refusal.faults)
    return ()


@pytest.mark.parametrize(
    ("kind", "path", "drawn", "distinct"), PLANS, ids=[plan[0].__name__ for plan in PLANS]
)
async def test_pydantic_and_the_api_server_agree(
    crds_installed: Path,
    kind: type[Resource],
    path: str,
    drawn: int,
    distinct: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bodies = generate(kind, drawn)
    async with RawApi.connect(crds_installed) as api:
        answers = await api.judge(path, bodies)
    verdicts: Counter[str] = Counter()
    quarrels: list[str] = []
    decided: set[str] = set()
    for body, answer in zip(bodies, answers, strict=True):
        refusal = words_of_pydantic(kind, body)
        verdicts["accepted" if answer.accepted else f"refused with {answer.status}"] += 1
        decided |= set(refusal) if len(refusal) == 1 else set()
        if answer.accepted != (not refusal):
            quarrels.append(
                f"{json.dumps(body['spec'])}\n  API server: {answer.status} {answer.message}"
                f"\n  pydantic: {refusal or 'accepted'}"
            )
    COMPARED[True] += len(bodies)
    COMPARED[False] += len(quarrels)
    record("crd-verdict-differences", COMPARED[False], f"of {COMPARED[True]} specs")
    assert not quarrels, f"{len(quarrels)} of {len(bodies)} differ:\n" + "\n".join(
        sorted(quarrels, key=len)[:10]
    )
    with capsys.disabled():
        words = f"{kind.__name__}: {len(bodies)} specs judged alike by both: {dict(verdicts)}"
        print(f"\n{words}")  # noqa: T201  # the count is what a reader of the log looks for
    # Both verdicts must be common, or the agreement would mean little.
    assert verdicts["accepted"] > len(bodies) // 10
    assert len(bodies) - verdicts["accepted"] > len(bodies) // 10
    assert len(bodies) >= distinct
    # Each rule refused some spec all by itself: switched off on either side, it would be missed.
    assert words_of_rules(spec_schema(kind)) - decided == set()
