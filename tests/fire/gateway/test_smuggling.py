"""What two readers could take differently is refused on every route, and nothing follows it."""

from __future__ import annotations

import asyncio
import json
import random
import ssl

import pytest

from e2e.chaos.scale import is_full, seed
from e2e.figures.record import record
from tests.support.fake_engine import FakeEngine, events
from tests.support.gateway import KEY_A, GatewayUnderTest
from tests.support.hostile_http import (
    BROKEN_IN_THE_BODY,
    SMUGGLED,
    Said,
    say,
    smuggling_set,
)

PUBLIC = (
    *("POST /v1/completions", "POST /v1/chat/completions", "GET /v1/models", "GET /v1/models/m"),
    *("GET /healthz", "GET /readyz", "POST /nowhere", "GET /", "PUT /v1/completions"),
)
ADMIN = (
    *("GET /admission", "GET /state", "PUT /policy", "POST /purge", "GET /evidence"),
    *("POST /drain", "POST /nowhere"),
)
SCRAPE = ("GET /metrics", "POST /nowhere")
SPLITS = 6
AT_ONCE = 64

Case = tuple[str, int, bytes, ssl.SSLContext | None]


def cases_of(gateway: GatewayUnderTest) -> list[Case]:
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    running = gateway.gateway
    ports = (
        (running.public.port, PUBLIC if is_full() else PUBLIC[:1] + PUBLIC[6:7], None),
        (running.admin.port, ADMIN if is_full() else ADMIN[2:3], tls),
        (running.scrape.port, SCRAPE if is_full() else SCRAPE[:1], None),
    )
    return [
        (f"{name} at {route}", port, request, context)
        for port, routes, context in ports
        for route in routes
        for name, request in smuggling_set(route).items()
    ]


async def said_to(cases: list[Case], rng: random.Random, splits: int) -> dict[str, Said]:
    """What the server said to each case, whole and cut into pieces at random."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(case: Case, cut: int) -> tuple[str, Said]:
        name, port, request, tls = case
        marks = sorted(rng.sample(range(1, len(request)), cut))
        pieces = [request[a:b] for a, b in zip([0, *marks], [*marks, None], strict=True)]
        async with gate:
            return f"{name} (cut at {marks})", await say(port, *pieces, tls=tls)

    jobs = [one(case, cut) for case in cases for cut in range(splits + 1)]
    return dict(await asyncio.gather(*jobs))


def is_refused(name: str, said: Said) -> bool:
    """Whether a request was refused and nothing behind it was taken.

    A close under a client that still sends may overtake the answer. And where the head is fine and
    the body breaks later, a route that needs no body may have answered by then.
    """
    case, _, cut = name.partition(" (cut at ")
    if cut == "[])" or not said.closed:
        return said.statuses == [400]
    early = case.rpartition(" at ")[0] in BROKEN_IN_THE_BODY and len(said.statuses) == 1
    return said.statuses in ([], [400]) or early


async def test_nothing_that_is_framed_two_ways_is_taken_and_nothing_behind_it(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    rng = random.Random(seed())  # noqa: S311 - where to cut
    answers = await said_to(cases_of(served), rng, SPLITS if is_full() else 0)
    assert len(answers) > 250
    wrong = {name: said for name, said in answers.items() if not is_refused(name, said)}
    told = sum(said.statuses == [400] for said in answers.values())
    if is_full():
        record(
            "smuggled-requests", len(wrong), f"of {len(answers)} on all routes; {told} got a 400"
        )
    assert wrong == {}
    assert all(said.closed for said in answers.values())
    assert engine.requests == []


def head(*headers: str) -> bytes:
    lines = (
        *("POST /v1/completions HTTP/1.1", "host: g", f"authorization: Bearer {KEY_A}"),
        *("content-type: application/json", *headers),
    )
    return "\r\n".join((*lines, "", "")).encode()


BODY = b'{"model":"m"}'
GOOD = head("content-length: 13") + BODY


async def test_honest_framing_is_taken(served: GatewayUnderTest, engine: FakeEngine) -> None:
    chunks = b"6;a=b\r\n" + BODY[:6] + b"\r\n7\r\n" + BODY[6:] + b"\r\n0\r\nx: y\r\n\r\n"
    close = "connection: close"
    honest = (
        b"\r\n" + head("content-length: 13", close) + BODY,
        head("Transfer-Encoding: CHUNKED", close) + chunks,
        head("transfer-encoding: chunked", "connection: upgrade, close", "upgrade: h2c") + chunks,
        head("x: \xc3\xa4", "content-length:\t13 ", close) + BODY,
    )
    for request in honest:
        said = await say(served.gateway.public.port, request)
        assert said.statuses == [200], request
    assert [body for _, body in engine.requests] == [BODY] * len(honest)


async def test_a_refusal_waits_for_the_answers_before_it(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    event, done = b"data: 1\n\n", b"data: [DONE]\n\n"
    engine.behaviour = events(event, done, pause_s=0.2)
    for bad in (
        b"garbage\r\n\r\n",
        head("content-length: 1", "transfer-encoding: chunked") + SMUGGLED,
        head("transfer-encoding: chunked") + b"zz\r\n",
        head("content-length: 99999999"),
    ):
        said = await say(served.gateway.public.port, GOOD + bad + SMUGGLED)
        first, _, second = said.data.partition(b"0\r\n\r\n")
        assert said.statuses == [200, 413 if b"99999999" in bad else 400]
        assert first.endswith(done + b"\r\n")
        assert second.startswith(b"HTTP/1.1 4")
        assert said.closed
    assert len(engine.requests) == 4


async def test_a_fault_behind_an_early_answer_gets_no_second_one(served: GatewayUnderTest) -> None:
    early = b"POST /nowhere HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n"
    said = await say(served.gateway.public.port, early, b"zz\r\n" + SMUGGLED)
    assert said.statuses in ([404], [400])
    assert said.closed


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_only_http_1_1_is_answered_in_chunks(
    served: GatewayUnderTest, engine: FakeEngine, version: str
) -> None:
    event, done = b"data: 1\n\n", b"data: [DONE]\n\n"
    engine.behaviour = events(event, done, pause_s=0.02)
    request = GOOD.replace(b"HTTP/1.1", b"HTTP/" + version.encode())
    said = await say(
        served.gateway.public.port, request.replace(b"host: g", b"host: g\r\nconnection: close")
    )
    head_, _, body = said.data.partition(b"\r\n\r\n")
    assert said.closed
    assert b"connection: close" in head_
    assert (b"chunked" in head_) == (version == "1.1")
    if version == "1.0":
        assert body == event + done


async def test_http_1_0_gets_lengths_where_they_are_known(served: GatewayUnderTest) -> None:
    for request in (GOOD, b"GET /healthz HTTP/1.0\r\n\r\n", b"GET /nowhere HTTP/1.0\r\n\r\n"):
        said = await say(served.gateway.public.port, request.replace(b"HTTP/1.1", b"HTTP/1.0"))
        head_, _, body = said.data.partition(b"\r\n\r\n")
        assert f"content-length: {len(body)}".encode() in head_
        json.loads(body)
