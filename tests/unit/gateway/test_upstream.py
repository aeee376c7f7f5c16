"""Connections to engines when many requests come at once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from fleetward_gateway.proxy.upstream import (
    CONNECTING_AT_ONCE,
    RECEIVE_BUFFER,
    PacedConnector,
    Upstream,
)
from tests.support.fake_engine import FakeEngine, events


class Handshakes:
    """How many are under way at once."""

    def __init__(self, real: Callable[..., Awaitable[Any]]) -> None:
        self._real = real
        self._now = 0
        self.most = 0

    async def __call__(self, *args: Any, **options: Any) -> Any:
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(0.01)
        try:
            return await self._real(*args, **options)
        finally:
            self._now -= 1


async def test_handshakes_wait_their_turn(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Handshakes] = []

    def counted(self: PacedConnector, *args: Any, **options: Any) -> Awaitable[Any]:
        return made[0](self, *args, **options)

    made.append(Handshakes(aiohttp.TCPConnector._create_connection))
    monkeypatch.setattr(aiohttp.TCPConnector, "_create_connection", counted)
    async with aiohttp.ClientSession(connector=PacedConnector(limit=0)) as session:
        url = f"http://127.0.0.1:{engine.port}/v1/completions"

        async def ask() -> int:
            async with session.post(url, json={}) as response:
                return response.status

        many = await asyncio.gather(*(ask() for _ in range(3 * CONNECTING_AT_ONCE)))
    assert set(many) == {200}
    assert made[0].most == CONNECTING_AT_ONCE


async def test_an_engine_that_answers_no_handshake_holds_up_no_other(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = aiohttp.TCPConnector._create_connection
    lost = asyncio.Event()

    async def swallowed(self: PacedConnector, req: Any, *args: Any) -> Any:
        if req.url.port != engine.port:
            await lost.wait()
        return await real(self, req, *args)

    monkeypatch.setattr(aiohttp.TCPConnector, "_create_connection", swallowed)
    async with (
        aiohttp.ClientSession(connector=PacedConnector(limit=0)) as session,
        asyncio.TaskGroup() as group,
    ):
        waiting = [
            group.create_task(session.get("http://127.0.0.1:1/"))
            for _ in range(2 * CONNECTING_AT_ONCE)
        ]
        await asyncio.sleep(0)
        url = f"http://127.0.0.1:{engine.port}/v1/completions"
        async with asyncio.timeout(10), session.post(url, json={}) as response:
            assert response.status == 200
        for task in waiting:
            task.cancel()


async def test_the_kernel_receives_little_ahead_of_a_slow_reader(engine: FakeEngine) -> None:
    async with Upstream(first_byte_s=5.0) as upstream:
        session = upstream._session
        assert session is not None
        url = f"http://127.0.0.1:{engine.port}/v1/completions"
        engine.behaviour = events(b"data: 1\n\n", b"data: [DONE]\n\n", pause_s=0.05)
        async with session.post(url, json={}) as response:
            assert response.connection is not None
            assert response.connection.transport is not None
            raw = response.connection.transport.get_extra_info("socket")
            assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= RECEIVE_BUFFER
