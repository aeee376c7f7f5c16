"""Many streams at once, and readers that take next to nothing of theirs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import statistics
import time
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from e2e.chaos.scale import is_full
from e2e.figures.record import record
from tests.support.eventually import eventually
from tests.support.fake_engine import FakeEngine
from tests.support.gateway import KEY_A
from tests.support.gateway_process import GatewayProcess, gateway_process

EVENT, DONE = b'data: {"n":1}\n\n', b"data: [DONE]\n\n"
FLOOD = b"data: " + b"x" * 4096 + b"\n\n"
HEADERS = {"Authorization": f"Bearer {KEY_A}"}
STALL_S = 5.0
STREAMS = 2000 if is_full() else 200
SLOW = 200 if is_full() else 20
OTHERS = 32
TOKENS = 100 if is_full() else 20
PAUSE_S = 0.05


async def behave(request: web.Request, body: bytes) -> web.StreamResponse:
    """As many events as the request says, with a pause; or as much as the client takes."""
    asked = json.loads(body)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    while asked.get("flood"):
        await response.write(FLOOD)
    for _ in range(asked["events"]):
        await response.write(EVENT)
        await asyncio.sleep(PAUSE_S)
    await response.write(DONE)
    return response


@pytest.fixture
async def process(engine: FakeEngine) -> AsyncIterator[GatewayProcess]:
    engine.behaviour = behave
    async with gateway_process(engine.port, client_stall_s=STALL_S) as running:
        yield running


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers=HEADERS) as opened:
        yield opened


async def gaps_of(session: aiohttp.ClientSession, url: str, events: int) -> list[float]:
    """Seconds between the events of one stream, which must be complete."""
    gaps, body, last = [], b"", time.monotonic()
    async with session.post(url, json={"model": "m", "events": events}) as response:
        assert response.status == 200
        async for piece in response.content.iter_any():
            now = time.monotonic()
            gaps.append(now - last)
            body, last = body + piece, now
    assert body == EVENT * events + DONE
    return gaps[1:]


async def test_many_streams_at_once_are_all_complete(
    process: GatewayProcess, session: aiohttp.ClientSession
) -> None:
    url = process.url + "/v1/completions"
    before = process.resident_mib()
    await process.metric("fleetward_gateway_event_loop_lag_seconds")
    results = await asyncio.gather(
        *(gaps_of(session, url, 20) for _ in range(STREAMS)), return_exceptions=True
    )
    lag = await process.metric("fleetward_gateway_event_loop_lag_seconds")
    faults = [result for result in results if isinstance(result, BaseException)]
    rise = process.peak_mib() - before
    if is_full():
        detail = f"+{rise:.0f} MiB, event loop held up for at most {lag:.2f} s"
        record("streams-2000-completed", len(results) - len(faults), detail)
    assert faults == []
    # What each costs in buffers and objects, whatever the machine.
    assert rise < 16 + STREAMS * 0.1
    assert await process.metric("fleetward_gateway_inflight_requests") == 0


def slow_reader(port: int) -> socket.socket:
    """A client of a flood that has not read anything yet."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    body = b'{"model":"m","flood":true}'
    lines = (
        *("POST /v1/completions HTTP/1.1", "host: g", f"authorization: Bearer {KEY_A}"),
        *("content-type: application/json", f"content-length: {len(body)}", "", ""),
    )
    client.sendall("\r\n".join(lines).encode() + body)
    client.setblocking(False)
    return client


async def sip(clients: list[socket.socket]) -> None:
    """One byte a second from each."""
    while True:
        for client in clients:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                client.recv(1)
        await asyncio.sleep(1)


async def p99_of_others(session: aiohttp.ClientSession, url: str) -> float:
    many = await asyncio.gather(*(gaps_of(session, url, TOKENS) for _ in range(OTHERS)))
    return statistics.quantiles([gap for gaps in many for gap in gaps], n=100)[98]


async def test_slow_readers_cost_little_memory_and_nobody_elses_time(
    process: GatewayProcess, session: aiohttp.ClientSession, engine: FakeEngine
) -> None:
    url = process.url + "/v1/completions"
    alone = [await p99_of_others(session, url)]
    before = process.resident_mib()
    clients = [slow_reader(process.public) for _ in range(SLOW)]
    sipping = asyncio.create_task(sip(clients))
    try:
        began = time.monotonic()
        await eventually(lambda: len(engine.requests) == OTHERS + SLOW, within_s=60)
        beside = await p99_of_others(session, url)
        rise = process.peak_mib() - before
        while await process.metric("fleetward_gateway_inflight_requests"):
            assert time.monotonic() - began < 120, "slow readers must be cut off"
            await asyncio.sleep(0.5)
        cut = await process.metric("fleetward_gateway_aborted_requests_total")
    finally:
        sipping.cancel()
        for client in clients:
            client.close()
    alone.append(await p99_of_others(session, url))
    ratio = beside / max(alone)
    if is_full():
        record("slow-reader-memory-mib", rise, f"{SLOW} readers of one byte a second")
        record("slow-reader-p99-ratio", ratio, f"p99 {beside * 1e3:.1f} ms between tokens")
    assert cut == SLOW
    assert rise <= 64
    assert process.resident_mib() - before <= 64
