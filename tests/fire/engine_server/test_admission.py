"""Refusals of admission as clients read them, live by bundle, in a whole engine of one place."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from fleetward_api.bundle import Admission, Scheduling
from tests.support.engine_server import RunningEngine, push, running_engine
from tests.support.eventually import eventually

BODY = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[RunningEngine]:
    async with running_engine(tmp_path, max_num_seqs=1, step_ms=20.0) as started:
        yield started


async def put(engine: RunningEngine, generation: int, admission: Admission) -> None:
    body = push(generation, scheduling=Scheduling(admission=admission))
    answer = await engine.admin("PUT", "/policy", body)
    assert answer.status_code == 200, answer.text


@asynccontextmanager
async def busy(engine: RunningEngine) -> AsyncIterator[None]:
    """The one place is taken for 40 s or until the block is left, and steps were measured."""
    long = asyncio.create_task(engine.chat({**BODY, "max_tokens": 2000}))
    await eventually(lambda: engine.stats.running == 1 and engine.stats.generation_tokens > 4)
    try:
        yield
    finally:
        long.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await long
    await eventually(lambda: engine.stats.requests == 0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("admission", "code", "reason"),
    [
        (Admission(max_predicted_wait_ms=1), "predicted_wait_too_long", "predicted_wait"),
        (Admission(kv_headroom_percent=95), "kv_headroom_exhausted", "kv_headroom"),
    ],
)
async def test_a_refusal_says_why_and_when_to_come_again(
    engine: RunningEngine, admission: Admission, code: str, reason: str, *, stream: bool
) -> None:
    await put(engine, 2, admission)
    async with busy(engine):
        answer = await engine.chat({**BODY, "stream": stream}, tenant="b")
        assert answer.status_code == 503, answer.text
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert (error["code"], error["type"], error["param"]) == (code, "overloaded_error", None)
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        # Told when stats are published next.
        await eventually(lambda: engine.stats.admission_refusals == {reason: 1})
        # Refused work holds nothing, and a busy engine is alive.
        assert engine.stats.running + engine.stats.waiting == 1
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"{engine.url}/health")).status_code == 200
            text = (await http.get(f"http://127.0.0.1:{engine.metrics_port}/metrics")).text
        assert f'fleetward_engine_admission_refusals_total{{reason="{reason}"}} 1.0' in text
        assert f'fleetward_engine_request_refused_total{{reason="{code}"}} 1.0' in text
    assert (await engine.chat(BODY, tenant="b")).status_code == 200


async def test_limits_are_lifted_live(engine: RunningEngine) -> None:
    await put(engine, 2, Admission(max_predicted_wait_ms=1))
    async with busy(engine):
        assert (await engine.chat(BODY)).status_code == 503
        await put(engine, 3, Admission())
        waiting = asyncio.create_task(engine.chat(BODY))
        await eventually(lambda: engine.stats.waiting == 1)
    assert (await waiting).status_code == 200
