"""Bodies that cost more than they look: bounded in what is read, held and made of them."""

from __future__ import annotations

import gzip
import json
import ssl
from collections.abc import AsyncIterator

import pytest

from e2e.chaos.scale import is_full
from e2e.figures.record import record
from fleetward_gateway.proxy.json_shape import MAX_CONTAINERS, MAX_MEMBERS, MAX_VALUES, overfull
from tests.support.fake_engine import FakeEngine
from tests.support.gateway import KEY_A
from tests.support.gateway_process import GatewayProcess, gateway_process
from tests.support.hostile_http import say

LIMIT = 2 << 20
SLACK = 64 << 10
FRAMING = 8 << 10
"""Head, sizes of chunks and records of TLS: read, but no part of the body."""

MEMORY_MIB = 32
TLS_READ = 264 << 10
"""What the TLS layer reads at a time, still encrypted; that port is only the operator's."""

ROUTES = (
    *("POST /v1/completions", "POST /v1/chat/completions", "GET /v1/models", "GET /healthz"),
    *("POST /nowhere", "PUT /v1/completions", "GET /readyz"),
)
ADMIN = ("GET /admission", "PUT /policy", "POST /purge", "POST /drain", "POST /nowhere")
SCRAPE = ("GET /metrics", "POST /nowhere")


@pytest.fixture
async def process(engine: FakeEngine) -> AsyncIterator[GatewayProcess]:
    async with gateway_process(engine.port) as running:
        yield running


def head(route: str, *headers: str, key: str = KEY_A) -> bytes:
    lines = (
        *(f"{route} HTTP/1.1", "host: g", f"authorization: Bearer {key}"),
        *("content-type: application/json", *headers),
    )
    return "\r\n".join((*lines, "", "")).encode()


def in_chunks(body: bytes) -> list[bytes]:
    size = 1 << 16
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]


def filled(begin: str, unit: str, end: str) -> bytes:
    room = LIMIT - len(begin.encode()) - len(end) - 1
    return (begin + unit * (room // len(unit.encode())) + end).encode()


def bombs() -> dict[str, bytes]:
    """Bodies within the limit that become as much memory, or as deep a nest, as they can."""
    begin = '{"model":"m","x":['
    names = ",".join(f'"{n:x}":0' for n in range(240_000))
    return {
        "depth": b'{"model":"m","x":' + b"[" * 1000 + b"]" * 1000 + b"}",
        "depth of a megabyte": b'{"model":"m","x":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}",
        "unclosed": filled(begin, "[", ""),
        "lists": filled(begin, "[],", "0]}"),
        "objects": filled(begin, "{},", "0]}"),
        "objects with a member": filled(begin, '{"":0},', "0]}"),
        "members": ('{"model":"m",' + names + "}").encode()[:LIMIT],
        "numbers": filled(begin, "1.5,", "0]}"),
        "texts": filled(begin, '"ab",', "0]}"),
        "one wide text": filled('{"model":"m","x":"\U0001f600', "x", '"'),
        "digits": filled('{"model":"m","x":', "9", "}"),
        "a key twice": filled('{"model":"m",', '"a":0,', '"a":0}'),
        "NaN": filled(begin, "NaN,", "0]}"),
        "infinity": b'{"model":"m","x":-Infinity}',
        "no UTF-8": b'{"model":"m","x":"' + b"\xff" * 1_000_000 + b'"}',
        "a surrogate": b'{"model":"m","x":"\xed\xa0\x80"}',
        "NUL": b'{"model":"m","x":"\x00"}',
        "not closed": b'{"model":"m","x":"' + b'\\"' * 1_000_000,
        "spaces": b" " * (LIMIT - 1),
    }


async def test_what_a_body_within_the_limit_costs_is_bounded(
    process: GatewayProcess, engine: FakeEngine
) -> None:
    rises: dict[str, float] = {}
    await one(process, b'{"model":"m"}', 200)
    for name, body in bombs().items():
        before = process.resident_mib()
        await one(process, body, 400)
        rises[name] = process.peak_mib() - before
    squeezed = gzip.compress(b" " * (200 << 20), 1)[: LIMIT - 1]
    before = process.resident_mib()
    for coding in ("gzip", "deflate", "br", "zstd", "gzip, identity"):
        await one(process, squeezed, 415, f"content-encoding: {coding}")
    rises["gzip"] = process.peak_mib() - before
    worst = max(rises, key=lambda name: rises[name])
    if is_full():
        record("bombs-memory-mib", rises[worst], f"{worst}; of {len(rises)}")
    assert rises[worst] <= MEMORY_MIB, rises
    assert len(engine.requests) == 1
    assert await process.metric("fleetward_gateway_held_body_bytes") == 0


async def one(process: GatewayProcess, body: bytes, status: int, *headers: str) -> None:
    request = head("POST /v1/completions", f"content-length: {len(body)}", "connection: close")
    request = request.replace(b"\r\n\r\n", "\r\n".join(("", *headers, "", "")).encode())
    said = await say(process.public, request + body)
    assert said.statuses == [status], (body[:40], said.data[:200])
    if status != 200:
        error = json.loads(said.data.partition(b"\r\n\r\n")[2])["error"]
        assert set(error) == {"message", "type", "param", "code"}


async def test_no_route_reads_more_than_its_limit(
    process: GatewayProcess, engine: FakeEngine
) -> None:
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    ports = (
        (process.public, ROUTES, None, LIMIT),
        (process.admin, ADMIN, tls, 4 << 20),
        (process.scrape, SCRAPE, None, 0),
    )
    await one(process, b'{"model":"m"}', 200)
    before, most = process.resident_mib(), 0
    for port, routes, context, limit in ports:
        for route in routes[:: 1 if is_full() else 5]:
            for framing, pieces, statuses in (
                (f"content-length: {100 << 20}", [b"x" * (1 << 16)] * 160, {413}),
                ("transfer-encoding: chunked", in_chunks(b"x" * (10 << 20)), ANY),
            ):
                for key in (KEY_A, "sk-wrong-0123456789abcdef"):
                    start = process.read_bytes()
                    said = await say(port, head(route, framing, key=key), *pieces, tls=context)
                    read = process.read_bytes() - start
                    assert said.closed, (route, framing)
                    assert set(said.statuses) <= statuses, (route, framing, said.data)
                    beyond = read - limit - FRAMING - (TLS_READ if context else 0)
                    most = max(most, beyond)
                    assert beyond <= SLACK, (route, framing, read)
    rise = process.peak_mib() - before
    if is_full():
        record("bombs-read-beyond-limit-kib", most / 1024, "bytes read on all routes, framing too")
    assert rise <= MEMORY_MIB
    assert len(engine.requests) == 1


ANY = {200, 400, 401, 404, 405, 413, 503}
"""A reset may also overtake the answer to a sender that never stops."""


def test_the_count_of_values_is_exact_and_blind_to_text() -> None:
    text = b'"[[[{{{,,,::: \\" \\\\"'
    for limit, shape, unit, said in (
        (MAX_CONTAINERS, b"[[{}," + text + b"]],", 3, "objects and arrays"),
        (MAX_MEMBERS, b'{"a":0,"b":' + text + b',"c\\\\":"\\\\\\"]"},', 3, "members of objects"),
    ):
        most = limit // unit
        assert overfull(b"[" + shape * (most - 1) + b"0]") == ""
        assert said in overfull(b"[" + shape * (most + 1) + b"0]")
    numbers = b"[" + b"1," * (MAX_VALUES - 2) + b"1]"
    assert overfull(numbers) == ""
    assert "values" in overfull(numbers.replace(b"]", b",1,1]"))
    prompt = json.dumps({"model": "m", "prompt": '[{"a": 1}, "x"],' * 60_000}).encode()
    assert overfull(prompt) == ""
