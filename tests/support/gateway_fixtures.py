"""A running gateway and engines behind it, per test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fake_engine import FakeEngine
from tests.support.gateway import GatewayUnderTest, gateway_under_test


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    fake = FakeEngine()
    await fake.start()
    yield fake
    await fake.stop()


@pytest.fixture
async def second_engine() -> AsyncIterator[FakeEngine]:
    fake = FakeEngine()
    await fake.start()
    yield fake
    await fake.stop()


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with gateway_under_test(tmp_path) as running:
        yield running


@pytest.fixture
def served(gateway: GatewayUnderTest, engine: FakeEngine) -> GatewayUnderTest:
    """The gateway with one service `m` for tenant a on one engine."""
    gateway.put_service()
    gateway.put_engines(engine)
    return gateway
