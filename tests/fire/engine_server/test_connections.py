"""Clients that leave in every way there is: the engine hears of it and holds nothing for them."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

import pytest
import pytest_asyncio

from fleetward_engine.engine import Engine
from fleetward_engine.server import protocol
from tests.support.engine_server import MODEL, RunningEngine, running_engine
from tests.support.eventually import eventually

TEXT = "/v1/completions"


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[RunningEngine]:
    async with running_engine(tmp_path, governed=False, step_ms=5.0, max_num_seqs=2) as running:
        yield running


def request_bytes(**fields: Any) -> bytes:
    body = json.dumps({"model": MODEL, "prompt": "x", "max_tokens": 1500, **fields}).encode()
    head = f"POST {TEXT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def connect(engine: RunningEngine) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", engine.public_port)


async def leave(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


async def nothing_is_held(engine: RunningEngine) -> None:
    service = engine.assembly.service
    await eventually(lambda: service.unfinished == 0)
    await eventually(lambda: engine.stats.requests + engine.stats.kv_block_references == 0)
    await eventually(lambda: service.held().responses + service.held().connections == 0)
    await service.loop.call(Engine.check_integrity)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("reset", [True, False])
async def test_a_client_that_sent_a_second_request_is_heard_leaving(
    engine: RunningEngine, stream: bool, reset: bool
) -> None:
    reader, writer = await connect(engine)
    writer.write(request_bytes(stream=stream))
    await eventually(lambda: engine.stats.running == 1)
    writer.write(request_bytes(stream=stream) + b"and more")
    await writer.drain()
    if reset:
        writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    # Nothing but the connection's end may tell: not a write that fails.
    writer.close()
    await nothing_is_held(engine)
    assert engine.stats.generation_tokens < 1500
    assert b"HTTP/1.1 400" not in await reader.read()


@pytest.mark.parametrize(
    "second",
    [request_bytes(max_tokens=5), request_bytes(max_tokens=5) + b"x" * 20_000, b"no request"],
    ids=["whole", "and more", "none"],
)
async def test_what_is_sent_too_early_is_to_be_sent_again(
    engine: RunningEngine, second: bytes
) -> None:
    reader, writer = await connect(engine)
    writer.write(request_bytes(max_tokens=3) + second)
    async with asyncio.timeout(20):
        answer = await reader.read()
    assert answer.count(b"HTTP/1.1 200 OK") == 1
    assert b"connection: close" in answer
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["usage"]["completion_tokens"] == 3
    await leave(writer)
    await nothing_is_held(engine)


async def test_requests_one_after_another_keep_their_connection(engine: RunningEngine) -> None:
    reader, writer = await connect(engine)
    for count in (1, 2, 3):
        writer.write(request_bytes(max_tokens=count))
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        answer = json.loads(await reader.readexactly(length))
        assert answer["usage"]["completion_tokens"] == count
    await leave(writer)
    await nothing_is_held(engine)


@pytest.mark.parametrize("sent", [b"", b"POST /v1/com", b"POST / HTTP/1.1\r\nhost: "])
async def test_a_head_that_does_not_come_ends_the_connection(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.1)
    reader, writer = await connect(engine)
    writer.write(sent)
    async with asyncio.timeout(20):
        assert await reader.read() == b""
    await leave(writer)
    await nothing_is_held(engine)


async def test_the_time_for_a_head_is_not_that_of_an_answer(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.2)
    reader, writer = await connect(engine)
    writer.write(request_bytes(max_tokens=200))
    async with asyncio.timeout(20):
        assert (await reader.readuntil(b"\r\n")).endswith(b"200 OK\r\n")
    await leave(writer)
    await nothing_is_held(engine)
