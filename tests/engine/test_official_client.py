"""The whole surface through the official client, on the demo model."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import openai
import pytest
import pytest_asyncio

from fleetward_engine.config import EngineConfig
from fleetward_engine.factory import build_engine
from tests.support.client_checks import Check, each_check
from tests.support.client_surface import HELLO
from tests.support.demo_model import URI
from tests.support.engine_server import MODEL, running_engine

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[openai.AsyncOpenAI]:
    config = EngineConfig(
        model_uri=URI, served_model_names=(MODEL,), dtype="float32", kv_cache_memory_bytes=64 << 20
    )
    # Loaded beforehand: on a busy machine that takes longer than servers may take to start.
    built = build_engine(config, time.monotonic)
    folder = tmp_path_factory.mktemp("client")
    async with (
        running_engine(folder, governed=False, build=lambda: built) as engine,
        openai.AsyncOpenAI(base_url=engine.url + "/v1", api_key="none", max_retries=0) as opened,
    ):
        yield opened


@each_check
async def test_surface(client: openai.AsyncOpenAI, check: Check) -> None:
    await check(client, MODEL)


async def test_choices_under_one_seed_differ_and_repeat(client: openai.AsyncOpenAI) -> None:
    async def texts(seed: int) -> list[str | None]:
        answer = await client.chat.completions.create(
            model=MODEL, messages=HELLO, n=4, seed=seed, max_tokens=12, temperature=1.5
        )
        return [choice.message.content for choice in answer.choices]

    first = await texts(3)
    assert first == await texts(3)
    assert len(set(first)) > 1
    assert first != await texts(4)


async def test_a_bias_decides(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(
        model=MODEL, prompt="The sea is", max_tokens=3, logit_bias={"44": 100}, temperature=0,
        logprobs=0,
    )  # fmt: skip
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert len(set(logprobs.tokens)) == 1
    assert len(logprobs.tokens) == 3


async def test_half_a_character_never_shows(client: openai.AsyncOpenAI) -> None:
    """Cut anywhere, the text so far is a beginning of the whole one, but for its last character."""
    asked = {"model": MODEL, "prompt": "😀 図書館 é", "temperature": 0, "logprobs": 0}
    whole = (await client.completions.create(**asked, max_tokens=12)).choices[0].text  # type: ignore[call-overload]
    for length in range(1, 12):
        cut = await client.completions.create(**asked, max_tokens=length)  # type: ignore[call-overload]
        assert whole.startswith(cut.choices[0].text.rstrip("�"))
