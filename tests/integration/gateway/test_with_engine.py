"""The gateway in front of the real engine's servers (simulated runner), used by the real client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest

from fleetward_api.floors import Floors
from tests.support.engine_server import MODEL, SERVICE_UID, RunningEngine, push, running_engine
from tests.support.eventually import eventually
from tests.support.gateway import KEY_A, KEY_B, GatewayUnderTest, gateway_under_test

LONG = "a prompt of several blocks, long enough to be found again in the cache " * 3


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[RunningEngine]:
    folder = tmp_path / "engine"
    folder.mkdir()
    async with running_engine(folder, step_ms=5.0) as running:
        yield running


@pytest.fixture
async def gateway(tmp_path: Path, engine: RunningEngine) -> AsyncIterator[GatewayUnderTest]:
    folder = tmp_path / "gateway"
    folder.mkdir()
    async with gateway_under_test(folder, signing=engine.keys.gateway) as running:
        running.put_service(model=MODEL, tenants=("a", "b"), uid=SERVICE_UID)
        running.put_ports(engine.public_port)
        yield running


@pytest.fixture
async def client(gateway: GatewayUnderTest) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        api_key=KEY_A, base_url=gateway.url + "/v1", max_retries=0
    ) as opened:
        yield opened


async def cached(client: openai.AsyncOpenAI, text: str) -> int:
    answer = await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": text}], max_tokens=4
    )
    assert answer.choices[0].message.role == "assistant"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    return answer.usage.prompt_tokens_details.cached_tokens or 0


async def test_the_official_client_streams_and_lists(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == [MODEL]
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=8,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    finish = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert finish[-1] in {"length", "stop"}
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 8


async def test_a_tenant_hits_its_own_cache_and_no_other(
    client: openai.AsyncOpenAI, gateway: GatewayUnderTest
) -> None:
    assert await cached(client, LONG) == 0
    assert await cached(client, LONG) > 0
    other = client.with_options(api_key=KEY_B)
    assert await cached(other, LONG) == 0
    assert await cached(other, LONG) > 0
    # A raised floor makes the tenant's old blocks unreachable at once, and only the tenant's.
    floors = Floors(version=1, tenants={"a": 1})
    gateway.gateway.view.raise_floors(floors)
    assert await cached(client, LONG) == 0
    assert await cached(other, LONG) > 0


async def test_a_request_authorised_below_the_engines_floor_neither_reads_nor_writes(
    client: openai.AsyncOpenAI, gateway: GatewayUnderTest, engine: RunningEngine
) -> None:
    floors = Floors(version=1, tenants={"a": 1})
    await engine.admin("PUT", "/policy", push(2, floors=floors))
    assert await cached(client, LONG) == 0
    assert await cached(client, LONG) == 0
    gateway.gateway.view.raise_floors(floors)
    assert await cached(client, LONG) == 0
    assert await cached(client, LONG) > 0


async def test_a_client_that_leaves_frees_the_engine(
    client: openai.AsyncOpenAI, engine: RunningEngine, gateway: GatewayUnderTest
) -> None:
    for stream in (True, False):
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": "x"}],
            "max_tokens": 1500,
            "stream": stream,
        }
        post = asyncio.create_task(read_all(gateway, body))
        await eventually(lambda: engine.stats.running == 1)
        post.cancel()
        await asyncio.gather(post, return_exceptions=True)
        await eventually(lambda: engine.stats.running == 0)
        assert engine.stats.generation_tokens < 1500


async def read_all(gateway: GatewayUnderTest, body: object) -> None:
    async with gateway.post(body) as response:
        await response.read()


async def test_what_the_engine_refuses_reaches_the_client_as_its_exception(
    client: openai.AsyncOpenAI, gateway: GatewayUnderTest
) -> None:
    with pytest.raises(openai.BadRequestError) as long:
        await cached(client, "x" * 5000)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        await client.chat.completions.create(
            model="absent", messages=[{"role": "user", "content": "x"}]
        )
    with pytest.raises(openai.AuthenticationError):
        await cached(client.with_options(api_key="sk-wrong-0123456789abcdef"), "x")
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "x"}], n=1_000_000
        )
    # An engine that trusts another key must not look like a bad API key.
    gateway.fill()
    gateway.signing = type(gateway.signing).generate()
    gateway.fill()
    with pytest.raises(openai.InternalServerError) as refused:
        await cached(client, "x")
    assert refused.value.status_code == 503


async def test_an_answer_that_misses_its_deadline_is_an_error_for_the_official_client(
    client: openai.AsyncOpenAI,
) -> None:
    with pytest.raises(openai.APIStatusError) as late:
        await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "hello"}],
            max_tokens=1000,
            extra_headers={"Fleetward-Deadline-Ms": "300"},
        )
    assert (late.value.status_code, late.value.code) == (504, "deadline_exceeded")


async def test_what_is_kept_of_a_request_reaches_its_client(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.with_raw_response.create(
        model=MODEL,
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=2,
        extra_body={"prompt_cache_options": {"ttl": "30m"}},
    )
    told = answer.headers["Fleetward-Retention"]
    assert told.startswith("store=device")
    assert "asked-ttl-ms=1800000" in told
