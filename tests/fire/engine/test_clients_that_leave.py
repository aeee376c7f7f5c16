"""Clients that connect and leave at every point of a request: nothing is held for them after."""

from __future__ import annotations

import asyncio
import json
import random
import struct
import time
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET

from e2e.chaos.scale import is_full, seed
from e2e.figures.record import record
from tests.support.engine_process import MODEL, TEXT, EngineProcess, ask, engine_process

AT_ONCE = 50
WAYS = (
    "connected", "half a head", "head", "half a body", "sent", "sent, soon", "first bytes",
    "one after another", "two at once", "half closed",
)  # fmt: skip


def request_bytes(rng: random.Random, *, max_tokens: int = 1500) -> bytes:
    body = {
        "model": MODEL,
        "prompt": "x" * rng.choice([1, 200, 3000, 5000]),
        "max_tokens": max_tokens,
        "stream": rng.random() < 0.5,
    }
    content = json.dumps(body).encode()
    return f"POST {TEXT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n\r\n".encode() + (
        content
    )


async def come_and_go(engine: EngineProcess, way: str, rng: random.Random) -> None:
    """One client that leaves at the point that `way` names, with or without a word."""
    reader, writer = await asyncio.open_connection("127.0.0.1", engine.port)
    sent = request_bytes(rng)
    head = sent.index(b"\r\n\r\n") + 4
    cut = {"connected": 0, "half a head": head // 2, "head": head, "half a body": -1}
    if way in cut:
        sent = sent[: cut[way]]
    elif way == "two at once":
        sent += request_bytes(rng)
    elif way == "one after another":
        writer.write(request_bytes(rng, max_tokens=1))
        await reader.readuntil(b"\r\n\r\n")
    writer.write(sent)
    await writer.drain()
    if way == "sent, soon":
        await asyncio.sleep(rng.random() * 0.3)
    elif way == "first bytes":
        reading = asyncio.create_task(reader.read(100))
        await asyncio.wait({reading}, timeout=rng.random() * 2)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    elif way == "half closed":
        writer.write_eof()
    if rng.random() < 0.5:
        off = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, off)
    writer.close()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def storm(engine: EngineProcess, clients: int) -> None:
    """That many clients, each in a way of its own, some dozens at a time."""
    rng = random.Random(seed())  # noqa: S311
    ways = [WAYS[n % len(WAYS)] for n in range(clients)]
    rng.shuffle(ways)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(way: str, number: int) -> None:
        async with gate:
            await come_and_go(engine, way, random.Random(seed() + number))  # noqa: S311

    await asyncio.gather(*(one(way, number) for number, way in enumerate(ways)))


async def back_at(engine: EngineProcess, baseline: dict[str, float], *, within_s: float) -> float:
    """Wait for the baseline; returns how much more than it is held in the end, over all kinds."""
    until = time.monotonic() + within_s
    while True:
        held = await engine.held()
        left = sum(abs(held[name] - baseline[name]) for name in baseline)
        if not left or time.monotonic() > until:
            return left
        await asyncio.sleep(0.2)


async def freed_after(engine: EngineProcess, *, stream: bool) -> float:
    """Seconds from the end of ten clients to that of everything held for them."""
    asked = [asyncio.create_task(ask(engine, stream=stream, max_tokens=7000)) for _ in range(10)]
    while (await engine.held())["num_requests_running"] < len(asked):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    since = time.monotonic()
    async with asyncio.timeout(30):
        while (await engine.held())["kv_block_references"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return time.monotonic() - since


async def test_clients_that_leave_hold_nothing(tmp_path: Path) -> None:
    clients = 1000 if is_full() else 100
    async with engine_process(tmp_path, prefill=50_000) as engine:
        await engine.ready()
        await ask(engine, stream=True, max_tokens=3)
        await engine.http.aclose()
        baseline = await engine.held()
        assert baseline["num_connections"] == baseline["leaks"] == 0
        await storm(engine, clients)
        left = await back_at(engine, baseline, within_s=60)
        seen = await engine.metrics()
        if is_full():
            # Long enough for the engine's own look at its books.
            await asyncio.sleep(12)
            left += await back_at(engine, baseline, within_s=0)
            record("drop-clients-left", left, f"{clients} clients that left in {len(WAYS)} ways")
    assert left == 0
    assert seen["generation_tokens_total"] > 0


async def test_what_a_client_held_is_free_at_once(tmp_path: Path) -> None:
    async with engine_process(tmp_path) as engine:
        await engine.ready()
        rounds = 10 if is_full() else 1
        took = [await freed_after(engine, stream=n % 2 == 0) for n in range(rounds)]
        if is_full():
            record("drop-freed-seconds", max(took), f"worst of {rounds} rounds of 10 clients")
            assert max(took) <= 1
