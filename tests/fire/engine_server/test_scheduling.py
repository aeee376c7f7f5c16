"""The order of requests as bundles and identities say, live in a whole engine of one place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from fleetward_api.bundle import Scheduling
from tests.support.engine_server import RunningEngine, push, running_engine
from tests.support.eventually import eventually

BODY = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 40}


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[RunningEngine]:
    async with running_engine(tmp_path, max_num_seqs=1, step_ms=5.0) as started:
        yield started


async def put(engine: RunningEngine, generation: int, scheduling: Scheduling) -> None:
    answer = await engine.admin("PUT", "/policy", push(generation, scheduling=scheduling))
    assert answer.status_code == 200, answer.text


async def order_of(engine: RunningEngine, *callers: dict[str, Any]) -> list[int]:
    """Send one request after the other while the first one runs; who ends when."""
    ended: list[int] = []

    async def ask(number: int, claims: dict[str, Any]) -> None:
        answer = await engine.chat(BODY, **claims)
        assert answer.status_code == 200, answer.text
        ended.append(number)

    tasks = []
    for number, claims in enumerate(callers):
        tasks.append(asyncio.create_task(ask(number, claims)))
        await eventually(lambda: engine.stats.running + engine.stats.waiting == len(tasks))
    await asyncio.gather(*tasks)
    return ended


async def test_the_order_is_the_bundles_and_changes_live(engine: RunningEngine) -> None:
    callers: list[dict[str, Any]] = [
        {"tenant": "a"},
        {"tenant": "a"},
        {"tenant": "b", "priority": 5},
    ]
    assert await order_of(engine, *callers) == [0, 1, 2]
    await put(engine, 2, Scheduling(policy="Priority", aging_after_ms=600_000))
    assert await order_of(engine, *callers) == [0, 2, 1]
    await put(engine, 3, Scheduling())
    assert await order_of(engine, *callers) == [0, 1, 2]


async def test_a_flood_of_one_tenant_does_not_keep_another_waiting(engine: RunningEngine) -> None:
    await put(engine, 2, Scheduling(policy="WeightedFair"))
    flood = [{"tenant": "a"}] * 4
    assert (await order_of(engine, *flood, {"tenant": "b"})).index(4) <= 2


async def test_who_waits_when_the_order_changes_stands_in_the_new_one(
    engine: RunningEngine,
) -> None:
    long = {**BODY, "max_tokens": 400}
    first = asyncio.create_task(engine.chat(long))
    await eventually(lambda: engine.stats.running == 1)
    ended: list[str] = []

    async def ask(tenant: str, **claims: Any) -> None:
        await engine.chat(BODY, tenant=tenant, **claims)
        ended.append(tenant)

    low = asyncio.create_task(ask("low"))
    await eventually(lambda: engine.stats.waiting == 1)
    high = asyncio.create_task(ask("high", priority=9))
    await eventually(lambda: engine.stats.waiting == 2)
    await put(engine, 2, Scheduling(policy="Priority", aging_after_ms=600_000))
    await asyncio.gather(first, low, high)
    assert ended == ["high", "low"]
