"""The order of requests as bundles and identities say, live in a whole engine of one place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
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
        # The first one runs until all others wait.
        answer = await engine.chat({**BODY, "max_tokens": 4 if number else 400}, **claims)
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
    assert await order_of(engine, *flood, {"tenant": "b"}) == [0, 4, 1, 2, 3]


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


async def test_one_that_waits_beyond_its_deadline_hears_so(engine: RunningEngine) -> None:
    first = asyncio.create_task(engine.chat({**BODY, "max_tokens": 400}))
    await eventually(lambda: engine.stats.running == 1)
    late = await engine.chat(BODY, deadline_ms=100)
    assert late.status_code == 504, late.text
    assert late.json()["error"]["code"] == "deadline_exceeded"
    assert late.headers["x-should-retry"] == "false"
    assert (await first).status_code == 200
    assert (await engine.chat(BODY, deadline_ms=60_000)).status_code == 200


async def test_a_stream_beyond_its_deadline_ends_with_an_error_in_it(
    engine: RunningEngine,
) -> None:
    body = {"model": "demo", **BODY, "max_tokens": 1000, "stream": True}
    headers = engine.identity(deadline_ms=300)
    answer = await engine.http.post(engine.url + "/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200
    events = [line for line in answer.text.split("\n\n") if line]
    assert "deadline_exceeded" in events[-1]
    assert 'finish_reason":"' not in answer.text
    await eventually(lambda: engine.stats.requests == 0)


async def test_one_that_would_be_late_is_refused_at_once(engine: RunningEngine) -> None:
    # Long enough that its prompt alone takes longer than a millisecond at any honest rate.
    prompt = {"messages": [{"role": "user", "content": "word " * 380}], "max_tokens": 1}
    assert (await engine.chat(prompt, tenant="a")).status_code == 200
    answer = await engine.chat(prompt, tenant="b", deadline_ms=1)
    assert answer.status_code == 503, answer.text
    assert answer.json()["error"]["code"] == "deadline_unreachable"
    assert 1 <= int(answer.headers["retry-after"]) <= 60


async def test_the_queue_is_told_by_tenant(engine: RunningEngine) -> None:
    for tenant in ("a", "a", "b"):
        assert (await engine.chat(BODY, tenant=tenant)).status_code == 200
    async with httpx.AsyncClient() as http:
        text = (await http.get(f"http://127.0.0.1:{engine.metrics_port}/metrics")).text
    assert 'fleetward_engine_tenant_queue_time_seconds_count{tenant="a"} 2.0' in text
    assert 'fleetward_engine_tenant_queue_time_seconds_count{tenant="b"} 1.0' in text
    assert 'fleetward_engine_request_success_total{finish_reason="deadline"} 0.0' in text
