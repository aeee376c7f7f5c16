"""A gateway that is told to end: nobody's request is lost on a connection that was kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from aiohttp import web

from fleetward_gateway.settings import Draining
from tests.support.eventually import eventually
from tests.support.fake_engine import Behaviour, FakeEngine
from tests.support.gateway import KEY_A, GatewayUnderTest

BODY = b'{"model":"m"}'
REQUEST = (
    f"POST /v1/completions HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {KEY_A}\r\n"
    f"content-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n"
).encode() + BODY
SOON = Draining(delay_s=0.3, grace_s=5.0)


class Kept:
    """A client that keeps its one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, gateway: GatewayUnderTest) -> Kept:
        return cls(*await asyncio.open_connection("127.0.0.1", gateway.gateway.public.port))

    async def ask(self) -> bytes:
        """Head of the answer to one request; its body is read."""
        self.writer.write(REQUEST)
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 10)
        length = next(
            (line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")),
            b"",
        )
        if length:
            await self.reader.readexactly(int(length.partition(b":")[2]))
        else:
            await self.reader.readuntil(b"0\r\n\r\n")
        return head

    async def ended(self) -> bool:
        """Whether the server closed, without another word."""
        return await asyncio.wait_for(self.reader.read(), 10) == b""


@pytest.fixture
def draining(served: GatewayUnderTest) -> GatewayUnderTest:
    served.gateway.settings = replace(served.gateway.settings, draining=SOON)
    return served


def waits_for(go_on: asyncio.Event) -> Behaviour:
    """An engine that answers once it may."""

    async def waits(_request: web.Request, _body: bytes) -> web.StreamResponse:
        await go_on.wait()
        return web.json_response({})

    return waits


async def test_answers_during_a_drain_are_the_last_of_their_connection(
    draining: GatewayUnderTest,
) -> None:
    client = await Kept.connect(draining)
    assert b"connection: close" not in await client.ask()
    drain = asyncio.create_task(draining.gateway.drain())
    await eventually(lambda: draining.gateway.member.draining)
    head = await client.ask()
    assert b" 200 " in head.splitlines()[0]
    assert head.lower().count(b"connection: close") == 1
    assert await client.ended()
    client.writer.close()
    await drain


async def test_a_request_that_was_waiting_when_the_drain_began_says_so_too(
    draining: GatewayUnderTest, engine: FakeEngine
) -> None:
    go_on = asyncio.Event()
    engine.behaviour = waits_for(go_on)
    client = await Kept.connect(draining)
    asked = asyncio.create_task(client.ask())
    await engine.arrived.wait()
    drain = asyncio.create_task(draining.gateway.drain())
    await asyncio.sleep(SOON.delay_s * 2)
    assert not drain.done()
    go_on.set()
    assert b"connection: close" in (await asked).lower()
    client.writer.close()
    await drain


async def test_resting_connections_close_before_the_end_and_new_ones_are_served(
    draining: GatewayUnderTest, engine: FakeEngine
) -> None:
    go_on = asyncio.Event()
    resting, fresh, busy = [await Kept.connect(draining) for _ in range(3)]
    await resting.ask()
    engine.behaviour = waits_for(go_on)
    engine.arrived.clear()
    asked = asyncio.create_task(busy.ask())
    await engine.arrived.wait()
    drain = asyncio.create_task(draining.gateway.drain())
    assert await resting.ended()
    assert not drain.done()
    late = asyncio.create_task(fresh.ask())
    await eventually(lambda: len(engine.requests) == 3)
    go_on.set()
    for head in await asyncio.gather(asked, late):
        assert b" 200 " in head.splitlines()[0]
    for client in (resting, fresh, busy):
        client.writer.close()
    await drain
