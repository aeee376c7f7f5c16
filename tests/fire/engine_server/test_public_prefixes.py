"""Public prefixes of a bundle, live in a whole engine: 512 blocks of 16 tokens."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest_asyncio

from fleetward_api.admin import ModelState
from fleetward_api.bundle import SharedPrefix
from fleetward_engine.engine import Engine
from fleetward_engine.factory import build_engine
from tests.support.engine_server import (
    BLOCK,
    MODEL,
    RunningEngine,
    engine_config,
    push,
    running_engine,
)
from tests.support.eventually import eventually

TEXT = "You help with contracts of the city. " * 6
SHARED: dict[str, Any] = {"shared_prefixes": (SharedPrefix(name="city", text=TEXT),)}


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[RunningEngine]:
    async with running_engine(tmp_path, max_num_seqs=4) as started:
        yield started


async def declare(engine: RunningEngine, generation: int, **fields: Any) -> None:
    answer = await engine.admin("PUT", "/policy", push(generation, **fields))
    assert answer.status_code == 200, answer.text
    await eventually(computed(engine, declared=bool(fields.get("shared_prefixes"))))


def computed(engine: RunningEngine, *, declared: bool) -> Callable[[], bool]:
    def holds() -> bool:
        stats = engine.assembly.service.stats()
        if stats is None:
            return False
        public = stats.public_blocks
        return public.cached == max(0, public.reserved - 1) and (public.cached > 0) == declared

    return holds


def cached(answer: httpx.Response) -> int:
    assert answer.status_code == 200, answer.text
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


async def chat(engine: RunningEngine, said: str, *, system: str = TEXT, **claims: Any) -> int:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": said}]
    return cached(await engine.chat({"messages": messages}, **claims))


async def complete(engine: RunningEngine, prompt: str, **claims: Any) -> int:
    body = {"model": MODEL, "max_tokens": 2, "prompt": prompt}
    headers = engine.identity(**claims)
    return cached(
        await engine.http.post(f"{engine.url}/v1/completions", json=body, headers=headers)
    )


async def test_all_tenants_share_it_as_system_message_and_as_beginning_of_a_prompt(
    engine: RunningEngine,
) -> None:
    assert await chat(engine, "Hello", tenant="a") == 0
    await declare(engine, 2, **SHARED)
    # A system message has a mark, its role and a line feed before it.
    whole = (len("system\n") + 1 + len(TEXT)) // BLOCK * BLOCK
    for tenant in ("b", "c"):
        assert await chat(engine, "Hello", tenant=tenant) >= whole
        assert await complete(engine, TEXT + "!", tenant=tenant) == len(TEXT) // BLOCK * BLOCK
    assert await chat(engine, "Hello", system="Never mind. " + TEXT, tenant="b") == 0
    metrics = (await engine.http.get(f"http://127.0.0.1:{engine.metrics_port}/metrics")).text
    assert 'kv_public_blocks{state="cached"}' in metrics
    assert "~public" not in metrics


async def test_a_public_prefix_comes_and_goes_live(engine: RunningEngine) -> None:
    await declare(engine, 2, **SHARED)
    first = await chat(engine, "Hello", tenant="a")
    again = await chat(engine, "Hello", tenant="a")
    assert again >= first > 0
    await declare(engine, 3)
    assert engine.stats.cached_blocks == 0
    assert await chat(engine, "Hello", tenant="b") == 0
    assert engine.stats.public_blocks.reserved == 0


async def test_a_new_epoch_has_it_computed_anew(engine: RunningEngine) -> None:
    await declare(engine, 2, **SHARED)
    await declare(engine, 3, epoch=2, secret=b"t" * 32, **SHARED)
    assert await chat(engine, "Hello", tenant="b") > 0


async def test_an_engine_that_starts_with_it_has_it_before_long(tmp_path: Path) -> None:
    gate, made = threading.Event(), engine_config(tmp_path)

    def build() -> tuple[Engine, ModelState]:
        gate.wait(60)
        return build_engine(made, time.monotonic)

    started = running_engine(tmp_path, build=build, policy=push(1, **SHARED), loaded=False)
    async with started as engine:
        gate.set()
        await eventually(lambda: engine.assembly.service.model is not None)
        await eventually(computed(engine, declared=True))
        assert await chat(engine, "Hello", tenant="a") > 0


async def test_more_than_a_quarter_of_the_pool_is_left_out_and_told(engine: RunningEngine) -> None:
    long = SharedPrefix(name="long", text="word " * 3000)
    await declare(engine, 2, shared_prefixes=(*SHARED["shared_prefixes"], long))
    public = engine.stats.public_blocks
    assert public.reserved <= 512 // 4
    assert public.left_out > 0
    assert await chat(engine, "Hello", tenant="b") > 0
