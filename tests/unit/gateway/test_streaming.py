"""Streams: passed on at once, ended honestly, and cancelled when nobody listens."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.support.eventually import eventually
from tests.support.fake_engine import FakeEngine, answers, events, hangs
from tests.support.gateway import KEY_A, GatewayUnderTest, gateway_under_test

FIRST, SECOND, DONE = b'data: {"n":1}\n\n', b'data: {"n":2}\n\n', b"data: [DONE]\n\n"


async def error_of(event: bytes) -> dict[str, Any]:
    assert event.startswith(b"data: ")
    error = json.loads(event.removeprefix(b"data: "))["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return dict(error)


async def test_events_come_one_by_one_while_the_engine_is_still_at_work(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    go_on = asyncio.Event()

    async def behave(request: web.Request, body: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        await response.write(FIRST)
        await go_on.wait()
        await response.write(SECOND)
        await response.write(DONE)
        return response

    engine.behaviour = behave
    async with served.post({"model": "m", "stream": True}) as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        assert await response.content.readany() == FIRST
        go_on.set()
        assert await response.content.read() == SECOND + DONE


async def test_an_engine_that_dies_in_mid_stream_ends_it_with_an_error_event(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    engine.behaviour = events(FIRST, b'data: {"half', then="die", pause_s=0.05)
    async with served.post() as response:
        assert response.status == 200
        body = await response.content.read()
    assert body.startswith(FIRST)
    error = await error_of(body.removeprefix(FIRST))
    assert error["code"] == "upstream_failed"
    assert b"half" not in body
    assert b"[DONE]" not in body


async def test_an_engine_that_dies_before_the_first_event_is_a_real_503(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    engine.behaviour = events(b"data: {", then="die", pause_s=0.05)
    async with served.post() as response:
        assert response.status == 503
        assert response.headers["retry-after"] == "1"
        assert (await response.json())["error"]["code"] == "upstream_failed"


async def test_silence_is_504_before_the_first_byte_and_an_event_after_it(
    tmp_path: Path, engine: FakeEngine
) -> None:
    async with gateway_under_test(tmp_path, first_byte_s=0.2, upstream_stall_s=0.2) as gateway:
        gateway.put_service()
        gateway.put_engines(engine)
        engine.behaviour = hangs
        async with gateway.post() as response:
            assert response.status == 504
            assert (await response.json())["error"]["code"] == "upstream_failed"
        await asyncio.wait_for(engine.left.wait(), 20)
        engine.left.clear()
        engine.behaviour = events(then="hang")
        async with gateway.post() as response:
            assert response.status == 504
        engine.behaviour = events(FIRST, then="hang")
        async with gateway.post() as response:
            assert response.status == 200
            body = await response.content.read()
        assert "stopped answering" in (await error_of(body.removeprefix(FIRST)))["message"]


async def test_a_client_that_leaves_before_the_first_byte_ends_the_work(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    engine.behaviour = hangs
    for stream in (True, False):
        engine.arrived.clear()
        engine.left.clear()
        post = asyncio.create_task(read_all(served, {"model": "m", "stream": stream}))
        await asyncio.wait_for(engine.arrived.wait(), 20)
        post.cancel()
        await asyncio.gather(post, return_exceptions=True)
        await asyncio.wait_for(engine.left.wait(), 20)
    await eventually(lambda: len(served.gateway.flights) == 0)
    assert served.gateway.dispatcher.load.in_flight == {}
    assert served.gateway.budget.held == 0


async def test_a_client_that_leaves_in_mid_stream_ends_the_work(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    engine.behaviour = events(FIRST, then="hang")
    response = await served.post()
    assert await response.content.readany() == FIRST
    response.close()
    await asyncio.wait_for(engine.left.wait(), 20)
    await eventually(lambda: len(served.gateway.flights) == 0)


async def read_all(gateway: GatewayUnderTest, body: object) -> bytes:
    async with gateway.post(body) as response:
        return bytes(await response.read())


async def test_a_client_that_leaves_while_sending_costs_nothing(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    _reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.public.port)
    writer.write(head(length=100_000) + b"x" * 50_000)
    await writer.drain()
    await eventually(lambda: served.gateway.budget.held > 0)
    writer.transport.abort()
    await eventually(lambda: served.gateway.budget.held == 0)
    assert engine.requests == []


def head(*, length: int) -> bytes:
    return (
        "POST /v1/completions HTTP/1.1\r\nhost: g\r\n"
        f"authorization: Bearer {KEY_A}\r\n"
        f"content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    ).encode()


async def test_a_slow_reader_holds_the_engine_back_and_is_cut_off(
    tmp_path: Path, engine: FakeEngine
) -> None:
    sent = 0

    async def floods(request: web.Request, body: bytes) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        event = b"data: " + b"x" * 10_000 + b"\n\n"
        while True:
            await response.write(event)
            sent += len(event)

    engine.behaviour = floods
    async with gateway_under_test(tmp_path, client_stall_s=0.5) as gateway:
        gateway.put_service()
        gateway.put_engines(engine)
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", gateway.gateway.public.port))
        body = b'{"model":"m"}'
        client.sendall(head(length=len(body)) + body)
        await asyncio.wait_for(engine.left.wait(), 20)
        # What was taken in before the stall is the kernel's and our bounded buffers.
        assert sent < 30_000_000
        await eventually(lambda: len(gateway.gateway.flights) == 0)
        await eventually(lambda: len(gateway.gateway.public.server_state.connections) == 0)
        client.close()


async def test_a_short_answer_that_breaks_off_is_503(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    async def breaks(request: web.Request, body: bytes) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Content-Length": "1000"}
        )
        await response.prepare(request)
        await response.write(b'{"choices":')
        assert request.transport is not None
        request.transport.abort()
        return response

    engine.behaviour = breaks
    async with served.post() as response:
        assert response.status == 503


async def test_a_long_answer_that_breaks_off_breaks_the_connection(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    async def breaks(request: web.Request, body: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b"x" * 2_000_000)
        await asyncio.sleep(0.1)
        assert request.transport is not None
        request.transport.abort()
        return response

    engine.behaviour = breaks
    async with served.post() as response:
        assert response.status == 200
        with pytest.raises((aiohttp.ClientError, OSError)):
            await response.read()
    engine.behaviour = answers
    async with served.post() as response:
        assert response.status == 200
