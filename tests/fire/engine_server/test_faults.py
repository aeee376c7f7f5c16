"""When the engine fails, hangs, can't load, or the client leaves: who hears what, and when."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from fleetward_api.admin import ModelState
from fleetward_api.floors import Floors
from fleetward_api.receipt import receipt_faults
from fleetward_engine.engine import Engine
from fleetward_engine.errors import ModelUnavailable
from fleetward_engine.factory import build_engine
from fleetward_engine.server import health
from tests.support.engine_server import (
    MODEL,
    Build,
    RunningEngine,
    engine_config,
    push,
    running_engine,
)
from tests.support.eventually import eventually
from tests.support.purge_orders import order, receipt_of

LONG = {"model": MODEL, "prompt": "x", "max_tokens": 1500}
TEXT = "/v1/completions"


def sabotaged(folder: Path, before_step: Callable[[int], None]) -> Build:
    """An engine that calls `before_step` with the number of each step."""

    def build() -> tuple[Engine, ModelState]:
        engine, state = build_engine(engine_config(folder), time.monotonic)
        run, count = engine._runner.run, 0

        def step(step_input: Any) -> Any:
            nonlocal count
            count += 1
            before_step(count)
            return run(step_input)

        runner: Any = engine._runner
        runner.run = step
        return engine, state

    return build


async def events(engine: RunningEngine, body: dict[str, Any]) -> list[str]:
    request = engine.http.stream("POST", engine.url + TEXT, json={**body, "stream": True})
    async with request as answer:
        text = (await answer.aread()).decode()
    return [line.removeprefix("data: ") for line in text.split("\n\n") if line]


async def test_a_failing_step_ends_streams_in_band_and_readiness(tmp_path: Path) -> None:
    def fail_later(step: int) -> None:
        if step > 5:
            raise RuntimeError("CUDA error: the device is gone")

    build = sabotaged(tmp_path, fail_later)
    async with running_engine(tmp_path, governed=False, build=build) as engine:
        seen = await events(engine, LONG)
        assert json.loads(seen[-1])["error"]["code"] == "engine_failed"
        assert "[DONE]" not in seen
        assert len(seen) > 2
        ready = await engine.http.get(engine.url + "/ready")
        assert (ready.status_code, "the device is gone" in ready.text) == (503, True)
        assert (await engine.http.get(engine.url + "/health")).status_code == 503
        answer = await engine.http.post(engine.url + TEXT, json=LONG)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_failed")
        assert engine.assembly.service.ended.is_set()


async def test_a_failure_before_the_first_byte_is_a_real_status(tmp_path: Path) -> None:
    def fail(_step: int) -> None:
        raise RuntimeError("at once")

    build = sabotaged(tmp_path, fail)
    async with running_engine(tmp_path, governed=False, build=build) as engine:
        answer = await engine.http.post(engine.url + TEXT, json={**LONG, "stream": True})
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "engine_failed")


async def test_a_hung_step_fails_liveness_and_a_busy_engine_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold, release = threading.Event(), threading.Event()

    def maybe_hang(_step: int) -> None:
        if hold.is_set():
            release.wait(30)

    monkeypatch.setattr(health, "HUNG_AFTER_S", 0.3)
    build = sabotaged(tmp_path, maybe_hang)
    async with running_engine(tmp_path, governed=False, build=build) as engine:
        work = [asyncio.create_task(events(engine, LONG)) for _ in range(40)]
        await eventually(lambda: engine.assembly.service.unfinished == 40)
        until = time.monotonic() + 0.8
        while time.monotonic() < until:
            assert (await engine.http.get(engine.url + "/health")).status_code == 200
            await asyncio.sleep(0.05)
        hold.set()
        condition = engine.assembly.service.condition
        await eventually(lambda: not health.liveness(condition(), time.monotonic()).ok)
        assert (await engine.http.get(engine.url + "/health")).status_code == 503
        hold.clear()
        release.set()
        await eventually(lambda: health.liveness(condition(), time.monotonic()).ok)
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)


async def test_a_model_that_cannot_load_says_so_everywhere(tmp_path: Path) -> None:
    def missing() -> tuple[Engine, ModelState]:
        raise ModelUnavailable("file:///nope: there is no such file")

    async with running_engine(tmp_path, build=missing) as engine:
        ready = await engine.http.get(engine.url + "/ready")
        assert (ready.status_code, "no such file" in ready.json()["message"]) == (503, True)
        state = (await engine.admin("GET", "/state")).json()
        assert state["fault"] == "file:///nope: there is no such file"
        assert state["model"] is None


async def test_everything_but_inference_answers_while_loading(tmp_path: Path) -> None:
    go = threading.Event()

    def slow() -> tuple[Engine, ModelState]:
        go.wait(30)
        return build_engine(engine_config(tmp_path), time.monotonic)

    raised = push(floors=Floors(version=1, tenants={"a": 1}))
    async with running_engine(tmp_path, build=slow, loaded=False, policy=raised) as engine:
        receipt = receipt_of(engine, await engine.admin("POST", "/purge", order("a", 1)))
        assert (receipt_faults(receipt), receipt.inserted, receipt.removed) == ([], 0, 0)
        assert (await engine.http.get(engine.url + "/health")).status_code == 200
        assert (await engine.http.get(engine.url + "/ready")).status_code == 503
        assert (await engine.admin("GET", "/state")).json()["bundleGeneration"] == 1
        answer = await engine.chat({"messages": [{"role": "user", "content": "x"}]})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_loading")
        metrics = await engine.http.get(f"http://127.0.0.1:{engine.metrics_port}/metrics")
        assert "num_requests_running" not in metrics.text
        go.set()
        await eventually(lambda: engine.assembly.service.phase == "running")
        assert (await engine.http.get(engine.url + "/ready")).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_its_slot(tmp_path: Path, stream: bool) -> None:
    async with running_engine(tmp_path, governed=False, step_ms=5.0) as engine:
        service = engine.assembly.service
        asking = [
            asyncio.create_task(
                engine.http.post(engine.url + TEXT, json={**LONG, "stream": stream})
            )
            for _ in range(20)
        ]
        await eventually(lambda: service.unfinished == 20)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await eventually(lambda: service.unfinished == 0)
        await eventually(lambda: engine.stats.running + engine.stats.waiting == 0)
        assert engine.stats.kv_blocks_used == 0
        page = engine.assembly.service.metrics.render().decode()
        assert 'request_success_total{finish_reason="abort"} 20.0' in page
        await service.loop.call(Engine.check_integrity)


async def test_a_client_that_leaves_before_the_first_byte_of_a_queue(tmp_path: Path) -> None:
    async with running_engine(tmp_path, governed=False, step_ms=5.0, max_num_seqs=1) as engine:
        first = asyncio.create_task(events(engine, LONG))
        await eventually(lambda: engine.stats.running == 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", engine.public_port)
        body = json.dumps({**LONG, "stream": True}).encode()
        head = f"POST {TEXT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await eventually(lambda: engine.stats.waiting == 1)
        writer.close()
        await writer.wait_closed()
        await eventually(lambda: engine.stats.waiting == 0)
        assert engine.stats.running == 1
        assert reader.at_eof() or not (await reader.read())
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


async def test_a_slow_reader_does_not_slow_the_others(tmp_path: Path) -> None:
    async with running_engine(tmp_path, governed=False) as engine:
        body = {**LONG, "stream": True}
        async with engine.http.stream("POST", engine.url + TEXT, json=body) as unread:
            assert unread.status_code == 200
            quick = await engine.http.post(engine.url + TEXT, json={**LONG, "max_tokens": 20})
            assert quick.json()["usage"]["completion_tokens"] == 20
            text = (await unread.aread()).decode()
        assert text.endswith("data: [DONE]\n\n")


async def test_a_draining_engine_serves_a_moment_longer_then_refuses(tmp_path: Path) -> None:
    now = time.monotonic()
    skip = 0.0

    def clock() -> float:
        return time.monotonic() + skip

    async with running_engine(tmp_path, governed=False, clock=clock) as engine:
        service = engine.assembly.service
        service.drain.start(now)
        assert (await engine.http.get(engine.url + "/ready")).status_code == 503
        short = {**LONG, "max_tokens": 1}
        answer: httpx.Response = await engine.http.post(engine.url + TEXT, json=short)
        assert answer.status_code == 200
        skip = 60.0
        answer = await engine.http.post(engine.url + TEXT, json=short)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert service.drain.done(clock(), unfinished=service.unfinished)
