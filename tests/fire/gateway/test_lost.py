"""Whatever an engine does, its client gets a whole answer, an error, or an error in the stream."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from e2e.chaos.scale import is_full, seed
from e2e.figures.record import record
from tests.support.fake_engine import FakeEngine, events
from tests.support.gateway import GatewayUnderTest, gateway_under_test
from tests.support.raw_engine import End, RawEngine, raw_engine

STALL_S = 0.3
EVENTUALLY_S = 20
"""Generous; how soon an error comes is a figure of the full form."""

EVENT, DONE = b'data: {"n":1}\n\n', b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"full","type":"server_error","param":null,"code":"x"}}\n\n'
WHOLE = b'{"choices":[{"text":"all of it"}]}'
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def chunked(*pieces: bytes, head: bytes = STREAM) -> bytes:
    return head + b"transfer-encoding: chunked\r\n\r\n" + b"".join(map(chunk, pieces))


LAST = b"0\r\n\r\n"
LENGTH = JSON + b"content-length: %d\r\n\r\n" % len(WHOLE)
ANSWERS: dict[str, tuple[bytes, str]] = {
    "stream": (chunked(EVENT, EVENT, DONE) + LAST, "whole"),
    "stream, no last chunk": (chunked(EVENT, DONE), "whole"),
    "stream with the engine's own error": (chunked(EVENT, ERROR) + LAST, "in-band"),
    "stream until the close": (STREAM + b"\r\n" + EVENT + DONE, "whole"),
    "nothing": (b"", "error"),
    "half a head": (STREAM[:30], "error"),
    "no head": (b"\x16\x03\x01 nothing of HTTP\r\n\r\n", "error"),
    "head alone": (STREAM + b"transfer-encoding: chunked\r\n\r\n", "error"),
    "half a chunk's size": (chunked(EVENT) + b"0000", "in-band"),
    "half a chunk": (chunked(EVENT) + b"ff\r\ndata: {", "in-band"),
    "half the first chunk": (chunked() + b"ff\r\ndata: {", "error"),
    "half an event": (chunked(EVENT, b'data: {"half'), "in-band"),
    "half an event, politely": (chunked(EVENT, b'data: {"half') + LAST, "in-band"),
    "no [DONE], politely": (chunked(EVENT, EVENT) + LAST, "in-band"),
    "no event, politely": (chunked() + LAST, "error"),
    "no [DONE] until the close": (STREAM + b"\r\n" + EVENT, "in-band"),
    "garbage for a chunk": (chunked(EVENT) + b"zz\r\n\x00\xff\r\n", "in-band"),
    "garbage for events": (chunked(EVENT, b"\x00\xff" * 500) + LAST, "in-band"),
    "garbage after a chunk": (chunked(EVENT)[:-2] + b"xx" + chunk(DONE) + LAST, "in-band"),
    "answer": (LENGTH + WHOLE, "whole"),
    "answer in chunks": (chunked(WHOLE, head=JSON) + LAST, "whole"),
    "half an answer": (LENGTH + WHOLE[:9], "error"),
    "half an answer in chunks": (chunked(WHOLE[:9], head=JSON), "error"),
    "half an answer, politely": (chunked(WHOLE[:9], head=JSON) + LAST, "error"),
    "answer until the close": (JSON + b"\r\n" + WHOLE, "error"),
    "half an answer until the close": (JSON + b"\r\n" + WHOLE[:9], "error"),
    "large answer, half": (JSON + b"content-length: 900000\r\n\r\n" + b"[" * 500_000, "error"),
    "no JSON": (JSON + b"content-length: 4\r\n\r\n\x00\xff\x00\xff", "error"),
    "another type": (b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nokay", "error"),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", "error"),
    "elsewhere": (b"HTTP/1.1 307 x\r\nlocation: /\r\ncontent-length: 0\r\n\r\n", "error"),
    "error, half": (b"HTTP/1.1 500 x\r\ncontent-length: 100\r\n\r\n{", "error"),
    "two lengths": (JSON + b"content-length: 4\r\ncontent-length: 5\r\n\r\nnull", "error"),
}
# A silent engine is lost to a limit on silence, which says the same in the same places.
ENDS: tuple[End, ...] = ("close", "reset", "hang")


@pytest.fixture
async def raw() -> AsyncIterator[RawEngine]:
    async with raw_engine() as engine:
        yield engine


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with gateway_under_test(
        tmp_path, first_byte_s=STALL_S, upstream_stall_s=STALL_S
    ) as gateway:
        gateway.put_service()
        yield gateway


async def outcome(gateway: GatewayUnderTest) -> tuple[str, bytes]:
    """What the client is left with: `whole`, `error`, `in-band`, or `lost`."""
    try:
        async with asyncio.timeout(30), gateway.post() as response:
            body: bytes = await response.read()
            if response.status != 200:
                error = json.loads(body)["error"]
                shaped = set(error) == {"message", "type", "param", "code"}
                return ("error" if shaped else "lost"), body
            streamed = response.content_type == "text/event-stream"
    except (aiohttp.ClientError, OSError, ValueError, KeyError) as fault:
        return "lost", repr(fault).encode()
    if not streamed:
        return ("whole" if body == WHOLE else "lost"), body
    last = body.rstrip().rpartition(b"\n\n")[2]
    if last == DONE.strip():
        return "whole", body
    return ("in-band" if last.startswith(b'data: {"error":') else "lost"), body


async def test_no_end_of_an_engine_loses_a_request(hasty: GatewayUnderTest) -> None:
    seen: dict[str, tuple[str, str, bytes]] = {}
    slowest = 0.0
    for name, (answer, expected) in ANSWERS.items():
        for end in ENDS:
            # A new engine each time: none is met on a connection that another case has spoilt.
            async with raw_engine() as raw:
                hasty.put_ports(raw.port)
                raw.answer, raw.end = answer, end
                began = time.monotonic()
                kind, body = await outcome(hasty)
                slowest = max(slowest, time.monotonic() - began)
                # Nothing may have gone out yet when the fault is met: then it is an error, too.
                if kind not in {expected, "error" if expected == "in-band" else expected}:
                    seen[f"{name}, then {end}"] = (kind, expected, body[:200])
                assert raw.bodies == 1, "an engine must not be given a request twice"
            assert body.count(b"[DONE]") <= 1
    assert seen == {}
    assert slowest < EVENTUALLY_S
    assert hasty.gateway.dispatcher.load.in_flight == {}
    assert hasty.gateway.budget.held == 0


async def test_no_storm_of_dying_engines_loses_a_request(
    hasty: GatewayUnderTest, raw: RawEngine, engine: FakeEngine
) -> None:
    """Engines die in every way at random, while others go on: each client knows what it has."""
    engine.behaviour = events(EVENT, DONE)
    rng = random.Random(seed())  # noqa: S311 - which way to die
    count = 3000 if is_full() else 150
    kinds: Counter[str] = Counter()
    gate = asyncio.Semaphore(16)

    async def one() -> None:
        async with gate:
            raw.answer, raw.end = rng.choice([a for a, _ in ANSWERS.values()]), rng.choice(ENDS)
            if rng.random() < 0.1:
                # A port where nobody listens: nothing is sent, so another engine is tried.
                hasty.put_ports(1, raw.port, engine.port)
            kind, _ = await outcome(hasty)
            kinds[kind] += 1

    hasty.put_ports(1, raw.port, engine.port)
    await asyncio.gather(*(one() for _ in range(count)))
    if is_full():
        record("gateway-lost-requests", kinds["lost"], f"of {count}: {dict(kinds)}")
    assert kinds["lost"] == 0, kinds
    assert min(kinds["whole"], kinds["error"], kinds["in-band"]) > 0
    assert len(hasty.gateway.flights) == 0
