"""The whole surface through the official client, with the gateway in between."""

from __future__ import annotations

from collections.abc import AsyncIterator

import openai
import pytest
import pytest_asyncio

from tests.support.client_checks import Check, each_check
from tests.support.engine_server import MODEL, SERVICE_UID, running_engine
from tests.support.gateway import KEY_A, gateway_under_test

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[openai.AsyncOpenAI]:
    async with (
        running_engine(tmp_path_factory.mktemp("engine")) as engine,
        gateway_under_test(
            tmp_path_factory.mktemp("gateway"), signing=engine.keys.gateway
        ) as gateway,
        openai.AsyncOpenAI(base_url=gateway.url + "/v1", api_key=KEY_A, max_retries=0) as opened,
    ):
        gateway.put_service(model=MODEL, tenants=("a",), uid=SERVICE_UID)
        gateway.put_ports(engine.public_port)
        yield opened


@each_check
async def test_surface(client: openai.AsyncOpenAI, check: Check) -> None:
    await check(client, MODEL)
