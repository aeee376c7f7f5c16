"""Quota and eviction of a bundle, live in a whole engine: 512 blocks of 16 tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from fleetward_api.bundle import Eviction, Quota
from tests.support.engine_server import RunningEngine, push, running_engine
from tests.support.eventually import eventually

BLOCKS = 512
LONG = "word " * 300
HALF: dict[str, Any] = {"quota": Quota(max_share_percent=10, guaranteed_share_percent=5)}


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[RunningEngine]:
    async with running_engine(tmp_path, max_num_seqs=4) as started:
        yield started


async def put(engine: RunningEngine, generation: int, **fields: Any) -> None:
    answer = await engine.admin("PUT", "/policy", push(generation, **fields))
    assert answer.status_code == 200, answer.text
    largest = push(generation, **fields).bundle.quota.max_share_percent * BLOCKS // 100
    await eventually(lambda: engine.stats.kv_blocks_max_share == largest)


async def flood(engine: RunningEngine, tenant: str, *, requests: int) -> None:
    for number in range(requests):
        await engine.cached_tokens(f"{number} {'word ' * 60}", tenant=tenant)


async def test_a_quota_applies_to_what_is_cached_already_and_to_what_comes(
    engine: RunningEngine,
) -> None:
    await flood(engine, "a", requests=8)
    assert engine.stats.shares["a"].cached > 51
    await put(engine, 2, **HALF)
    assert engine.stats.kv_blocks_guaranteed == 25
    assert engine.stats.shares["a"].cached == 51 - 51 // 16
    await flood(engine, "b", requests=8)
    assert engine.stats.shares["b"].cached <= 51
    counts = {scope.tenant: count for scope, count in engine.stats.scope_counts.items()}
    assert counts["b"].evicted_quota > 0
    assert counts["b"].evicted_pool == 0
    await put(engine, 3)
    assert engine.stats.kv_blocks_guaranteed == 0


async def test_a_request_beyond_its_tenants_share_is_refused_in_words(
    engine: RunningEngine,
) -> None:
    body = {"messages": [{"role": "user", "content": LONG}]}
    assert (await engine.chat(body)).status_code == 200
    await put(engine, 2, **HALF)
    answer = await engine.chat(body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert str(51 * 16) in answer.json()["error"]["message"]
    short = await engine.chat({"messages": [{"role": "user", "content": "hi"}], "max_tokens": None})
    assert short.status_code == 200
    assert short.json()["usage"]["total_tokens"] <= 51 * 16


async def test_a_bundle_pushed_while_the_model_loads_governs_the_first_request(
    tmp_path: Path,
) -> None:
    policy = push(1, eviction=Eviction(policy="Priority", protected_share_percent=20), **HALF)
    async with running_engine(tmp_path, policy=policy, loaded=False) as engine:
        await engine.cached_tokens("hello")
        await eventually(lambda: engine.stats.kv_blocks_max_share == 51)


async def test_metrics_tell_who_holds_how_much_and_why_blocks_left(engine: RunningEngine) -> None:
    await put(engine, 2, **HALF)
    await flood(engine, "a", requests=6)
    await engine.cached_tokens("hello " * 40, tenant="b")
    assert await engine.cached_tokens("hello " * 40, tenant="b") > 0
    page = engine.assembly.service.metrics.render().decode()
    stats = engine.stats
    told = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in page.splitlines()
            if line and not line.startswith("#")}  # fmt: skip
    name = "fleetward_engine_"
    assert told[name + "kv_share_max_blocks"] == 51
    assert told[name + "kv_share_guaranteed_blocks"] == 25
    for tenant in ("a", "b"):
        labels = f'kv_tenant_blocks{{state="cached",tenant="{tenant}"}}'
        assert told[name + labels] == stats.shares[tenant].cached > 0
    assert told[name + 'kv_evictions_total{reason="quota"}'] > 0
    assert told[name + 'kv_evictions_total{reason="pool"}'] == 0
    assert told[name + 'kv_tenant_hit_blocks_total{tenant="a"}'] == 0
    assert told[name + 'kv_tenant_hit_blocks_total{tenant="b"}'] > 0
    assert told[name + "kv_blocks_expired_total"] == told[name + "kv_blocks_purged_total"] == 0
