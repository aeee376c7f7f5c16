"""Host memory under a bundle, in a whole engine: what enters, what is told, and how it goes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from fleetward_api.bundle import HostTier, Retention, RetentionClass, Tiers
from fleetward_api.floors import Floors
from fleetward_api.receipt import receipt_faults
from tests.support.engine_server import BLOCK, RunningEngine, push, running_engine
from tests.support.eventually import eventually
from tests.support.purge_orders import PROMPT, order, receipt_of

BLOCKS = 40
KV_BYTES_PER_TOKEN = 64
RETENTION = Retention(classes={"keep": RetentionClass(store="DeviceAndHost")})
TIERED: dict[str, Any] = {
    "retention": RETENTION,
    "tiers": Tiers(host=HostTier(size_bytes=1 << 20)),
}


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[RunningEngine]:
    async with running_engine(
        tmp_path,
        policy=push(1, **TIERED),
        kv_cache_memory_bytes=BLOCKS * BLOCK * KV_BYTES_PER_TOKEN,
        host_kv_cache_memory_bytes=1 << 20,
    ) as started:
        # So that nothing here depends on how fast this machine is: computing is always dearer.
        core = await started.assembly.service.loop.call(lambda engine: engine)
        core._kv_cache.host._prefill_s_per_token = lambda: 60.0
        yield started


async def push_out(engine: RunningEngine) -> None:
    """Fill the device with another tenant's prompts, of a class that stays there."""
    for number in range(4):
        await engine.cached_tokens(f"{number} {'word ' * 60}", tenant="b")


async def test_blocks_of_a_class_wait_in_host_memory_and_a_purge_finds_them(
    engine: RunningEngine,
) -> None:
    await engine.cached_tokens(PROMPT, tenant="a", retention_class="keep")
    await push_out(engine)
    await eventually(lambda: engine.stats.host.counters.offloads > 0)
    state = (await engine.admin("GET", "/state")).json()
    assert [one["tenant"] for one in state["hostKvHoldings"]] == ["a"]
    assert state["hostKvBlocksTotal"] > 100
    assert await engine.cached_tokens(PROMPT, tenant="b", retention_class="keep") == 0
    assert await engine.cached_tokens(PROMPT, tenant="a", retention_class="keep") > 0
    await eventually(lambda: engine.stats.host.counters.loads > 0)
    await push_out(engine)
    raised = push(2, secret=None, floors=Floors(version=1, tenants={"a": 1}), **TIERED)
    assert (await engine.admin("PUT", "/policy", raised)).status_code == 200
    receipt = receipt_of(engine, await engine.admin("POST", "/purge", order("a", 1)))
    assert receipt_faults(receipt) == []
    host = next(tier for tier in receipt.tiers if tier.tier == "host")
    assert (host.blocks, host.method) == (receipt.removed, "overwritten")
    assert await engine.cached_tokens(PROMPT, tenant="a", floor=1, retention_class="keep") == 0


async def test_a_policy_without_the_tier_empties_it_at_once(engine: RunningEngine) -> None:
    await engine.cached_tokens(PROMPT, tenant="a", retention_class="keep")
    await push_out(engine)
    await eventually(lambda: engine.stats.host.blocks > 0)
    answer = await engine.admin("PUT", "/policy", push(2, retention=RETENTION))
    assert answer.status_code == 200
    await eventually(lambda: engine.stats.host.blocks == engine.stats.host.slots == 0)
    assert await engine.cached_tokens(PROMPT, tenant="a", retention_class="keep") == 0
    metrics = (await engine.http.get(f"http://127.0.0.1:{engine.metrics_port}/metrics")).text
    assert "fleetward_engine_kv_host_cached_blocks 0.0" in metrics
