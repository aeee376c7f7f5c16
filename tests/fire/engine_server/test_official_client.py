"""The whole surface through the official client, against an engine's own port."""

from __future__ import annotations

from collections.abc import AsyncIterator

import openai
import pytest
import pytest_asyncio

from tests.support.client_checks import Check, each_check
from tests.support.engine_server import MODEL, running_engine

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[openai.AsyncOpenAI]:
    folder = tmp_path_factory.mktemp("client")
    async with (
        running_engine(folder, governed=False) as engine,
        openai.AsyncOpenAI(base_url=engine.url + "/v1", api_key="none", max_retries=0) as opened,
    ):
        yield opened


@each_check
async def test_surface(client: openai.AsyncOpenAI, check: Check) -> None:
    await check(client, MODEL)
