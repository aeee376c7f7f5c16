"""Never half alive: what is lost, leaked, paused or panics is noticed and told."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from fleetward_api.admin import ModelState
from fleetward_api.owner import Owner
from fleetward_engine.engine import Engine
from fleetward_engine.factory import build_engine
from fleetward_engine.outputs import EngineStats
from fleetward_engine.server import loop as loop_module
from fleetward_engine.server.health import (
    HUNG_AFTER_S,
    PAUSED_AFTER_S,
    Condition,
    Heartbeat,
    liveness,
)
from fleetward_engine.server.leaks import LeakWatch
from fleetward_engine.server.service import EngineService
from tests.support.engine_core import make_bench, make_request
from tests.support.engine_server import MODEL, RunningEngine, engine_config, running_engine
from tests.support.eventually import eventually

TEXT = "/v1/completions"
LONG = {"model": MODEL, "prompt": "x", "max_tokens": 1500}


class Panic(BaseException):
    """What a library written in another language raises when it gives up."""


def stats(**numbers: int) -> EngineStats:
    nothing: dict[str, Any] = dict.fromkeys(EngineStats.__dataclass_fields__, 0)
    return EngineStats(**{**nothing, **numbers})


def condition(*, progress_at: float, resumed_at: float) -> Condition:
    return Condition(
        phase="running",
        fault="",
        has_bundle=True,
        draining=False,
        progress_at=progress_at,
        resumed_at=resumed_at,
    )


def test_a_pause_of_the_process_is_no_hang_and_a_hang_after_it_is() -> None:
    heartbeat = Heartbeat(0.0)
    for second in range(1, 20):
        heartbeat.beat(float(second))
    assert heartbeat.resumed_at == 0.0
    woken = 20 + 3600.0
    heartbeat.beat(woken)
    paused = condition(progress_at=19.5, resumed_at=heartbeat.resumed_at)
    assert liveness(paused, woken).ok
    for second in range(1, 60):
        heartbeat.beat(woken + second)
    assert heartbeat.resumed_at == woken
    assert liveness(paused, woken + HUNG_AFTER_S - 1).ok
    assert not liveness(paused, woken + HUNG_AFTER_S + 1).ok


def test_an_event_loop_that_is_a_little_late_hides_no_hang() -> None:
    heartbeat = Heartbeat(0.0)
    now = 0.0
    while now <= HUNG_AFTER_S + 1:
        now += PAUSED_AFTER_S - 0.1
        heartbeat.beat(now)
    stuck = condition(progress_at=0.0, resumed_at=heartbeat.resumed_at)
    assert not liveness(stuck, now).ok


def test_a_leak_is_told_once_and_again_when_it_grows() -> None:
    watch = LeakWatch()
    assert watch.look(stats(), []).grown == {}
    held = {"kv_blocks_used": 3, "kv_block_references": 4, "running": 1}
    first = watch.look(stats(**held), [])
    assert first.grown == {"kv_block": 3, "kv_block_reference": 4, "sequence": 1}
    assert watch.look(stats(**held), []).grown == {}
    assert watch.look(stats(**{**held, "kv_blocks_used": 5}), []).grown == {"kv_block": 2}
    assert watch.look(stats(), []).grown == {}
    assert watch.look(stats(kv_blocks_used=1), []).grown == {"kv_block": 1}


def test_a_request_is_lost_when_two_idle_looks_find_it_awaited() -> None:
    watch = LeakWatch()
    assert watch.look(stats(), ["a"]).lost == ()
    looked = watch.look(stats(), ["a", "b"])
    assert (looked.lost, looked.grown) == (("a",), {"request": 1})
    assert watch.look(stats(), ["c"]).lost == ()


def test_each_user_of_a_block_is_counted_and_none_is_left() -> None:
    bench = make_bench()
    prompt = range(1, 17)
    bench.run(make_request("warm", prompt))
    assert bench.engine.stats().kv_block_references == 0
    for name in ("one", "two"):
        bench.engine.add_request(make_request(name, prompt))
    bench.step()
    seen = bench.engine.stats()
    assert seen.requests == 2
    assert seen.kv_block_references > seen.kv_blocks_used > 0
    bench.run()
    seen = bench.engine.stats()
    assert (seen.requests, seen.kv_block_references, seen.kv_blocks_used) == (0, 0, 0)


async def first_event(engine: RunningEngine) -> tuple[int, dict[str, Any]]:
    """Status of a request that asks for a stream, and its error, in-band or not."""
    body = {**LONG, "stream": True}
    async with engine.http.stream("POST", engine.url + TEXT, json=body) as answer:
        text = (await answer.aread()).decode().strip()
    return answer.status_code, json.loads(text.split("\n\n")[-1].removeprefix("data: "))["error"]


@pytest.mark.parametrize("fault", [Panic("gave up"), MemoryError(), SystemExit(3)], ids=repr)
async def test_whatever_ends_the_engine_s_thread_is_told(
    tmp_path: Path, fault: BaseException
) -> None:
    def build() -> tuple[Engine, ModelState]:
        engine, state = build_engine(engine_config(tmp_path), time.monotonic)

        def step() -> None:
            raise fault

        engine.step = step  # type: ignore[assignment,method-assign]
        return engine, state

    async with running_engine(tmp_path, governed=False, build=build) as engine:
        status, error = await first_event(engine)
        assert (status, error["code"]) == (500, "engine_failed")
        assert type(fault).__name__ in engine.assembly.service.fault
        assert (await engine.http.get(engine.url + "/ready")).status_code == 503
        assert engine.assembly.service.ended.is_set()


async def test_whatever_ends_the_loading_of_a_model_is_told(tmp_path: Path) -> None:
    def build() -> tuple[Engine, ModelState]:
        raise Panic("gave up")

    async with running_engine(tmp_path, governed=False, build=build) as engine:
        assert engine.assembly.service.phase == "load_failed"
        assert "gave up" in (await engine.http.get(engine.url + "/ready")).text


@pytest.mark.parametrize("heard", ["on_outputs", "on_loaded"])
async def test_an_answer_that_cannot_be_handled_fails_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: str
) -> None:
    def raises(*_arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr(EngineService, heard, raises)
    async with running_engine(tmp_path, governed=False) as engine:
        if heard == "on_outputs":
            status, error = await first_event(engine)
            assert (status, error["code"]) == (500, "engine_failed")
        assert engine.assembly.service.phase == "failed"
        assert engine.assembly.service.ended.is_set()


async def test_what_is_held_while_nothing_runs_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "IDLE_REPORT_EVERY_S", 0.0)
    kept = 2

    def hold(engine: Engine) -> None:
        for _ in range(kept):
            engine._kv_cache.pool.allocate(Owner.of("nobody"))

    async with running_engine(tmp_path, governed=False) as engine:
        service = engine.assembly.service
        answer = await engine.http.post(engine.url + TEXT, json={**LONG, "max_tokens": 4})
        assert answer.status_code == 200
        await eventually(lambda: 'leaks_total{kind="kv_block"} 0.0' in page(engine))
        await service.loop.call(hold)
        await eventually(lambda: f'leaks_total{{kind="kv_block"}} {kept}.0' in page(engine))
        assert f'leaks_total{{kind="kv_block_reference"}} {kept}.0' in page(engine)


async def test_a_request_that_the_engine_lost_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "IDLE_REPORT_EVERY_S", 0.0)
    async with running_engine(tmp_path, governed=False) as engine:
        service = engine.assembly.service
        monkeypatch.setattr(service.loop, "submit", lambda _request: None)
        async with asyncio.timeout(20):
            status, error = await first_event(engine)
        assert (status, error["code"]) == (500, "engine_error")
        assert 'leaks_total{kind="request"} 1.0' in page(engine)
        assert service.unfinished == 0


async def test_what_is_held_for_clients_is_shown(tmp_path: Path) -> None:
    async with running_engine(tmp_path, governed=False, step_ms=5.0) as engine:
        body = {**LONG, "stream": True}
        async with engine.http.stream("POST", engine.url + TEXT, json=body) as answer:
            assert answer.status_code == 200
            await eventually(lambda: engine.stats.kv_blocks_used > 0)
            shown = page(engine)
            for gauge in ("requests_unfinished", "open_responses", "connections", "requests"):
                assert f"engine_num_{gauge} 1.0" in shown
            assert "engine_kv_block_references 0.0" not in shown
        await eventually(lambda: "engine_num_open_responses 0.0" in page(engine))
        await eventually(lambda: "engine_num_connections 0.0" in page(engine))


def page(engine: RunningEngine) -> str:
    return engine.assembly.service.metrics.render().decode()
