"""The connection itself, spoken to byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket

import pytest
from aiohttp import web

from fleetward_gateway.server import protocol
from fleetward_gateway.server.protocol import MAX_HEAD_BYTES
from tests.support.eventually import eventually
from tests.support.fake_engine import FakeEngine, hangs
from tests.support.gateway import KEY_A, GatewayUnderTest

BODY = b'{"model":"m"}'
HEAD = (
    f"POST /v1/completions HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {KEY_A}\r\n"
    "content-type: application/json\r\n"
).encode()
REQUEST = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY


async def exchange(gateway: GatewayUnderTest, *pieces: bytes) -> bytes:
    """Everything the server says until it closes, or falls silent after an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.gateway.public.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()


def parts(answer: bytes) -> tuple[int, bytes, bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head, body


async def test_bytes_that_are_no_http_get_an_error_in_shape(gateway: GatewayUnderTest) -> None:
    for garbage in (b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n"):
        status, head, body = parts(await exchange(gateway, garbage))
        assert status == 400
        assert b"x-request-id" in head
        assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}


async def test_two_lengths_of_one_body_are_refused(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    both = HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    twice = HEAD + b"content-length: 13\r\ncontent-length: 14\r\n\r\n" + BODY
    for request in (both, twice):
        status, _, _ = parts(await exchange(served, request))
        assert status == 400
    assert engine.requests == []


async def test_a_huge_head_is_refused_while_it_comes(gateway: GatewayUnderTest) -> None:
    start = b"GET /healthz HTTP/1.1\r\nhost: g\r\nx: "
    status, _, body = parts(await exchange(gateway, start, b"a" * (MAX_HEAD_BYTES + 1)))
    assert status == 431
    assert json.loads(body)["error"]["code"] == "request_too_large"


async def test_a_head_that_does_not_come_is_cut_off(
    gateway: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.05)
    for start in (b"", b"GET /healthz HT"):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.gateway.public.port)
        writer.write(start)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), 20)
        writer.close()


async def test_a_running_answer_is_not_cut_off_by_stray_bytes(
    served: GatewayUnderTest, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(request: web.Request, body: bytes) -> web.StreamResponse:
        await asyncio.sleep(0.3)
        return web.json_response("done")

    engine.behaviour = slow
    monkeypatch.setattr(protocol, "HEAD_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.public.port)
    writer.write(REQUEST + b"\r\n")
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
    assert head.startswith(b"HTTP/1.1 200")
    writer.close()


@pytest.mark.parametrize("more", [REQUEST, REQUEST[:-3], REQUEST[:40], REQUEST + REQUEST[:40]])
async def test_a_client_that_sent_more_is_heard_leaving(
    served: GatewayUnderTest, engine: FakeEngine, more: bytes
) -> None:
    engine.behaviour = hangs
    _reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.public.port)
    writer.write(REQUEST)
    await asyncio.wait_for(engine.arrived.wait(), 20)
    writer.write(more)
    await writer.drain()
    # Nothing is written to it before the engine answers, so only its end can tell.
    writer.close()
    await asyncio.wait_for(engine.left.wait(), 20)
    await eventually(lambda: len(served.gateway.flights) == 0)
    await eventually(lambda: len(served.gateway.public.server_state.tasks) == 0)
    assert len(engine.requests) == 1


async def test_requests_on_one_connection_are_answered_in_order(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    last = REQUEST.replace(b"host: g\r\n", b"host: g\r\nconnection: close\r\n")
    answer = await exchange(served, REQUEST + REQUEST + last)
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert len(engine.requests) == 3


async def test_a_body_is_refused_before_it_is_sent(served: GatewayUnderTest) -> None:
    head = HEAD + b"expect: 100-continue\r\ncontent-length: 99999999\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.public.port)
    writer.write(head)
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
    assert answer.startswith(b"HTTP/1.1 413")
    writer.close()


async def test_what_is_sent_after_a_refusal_is_bounded(served: GatewayUnderTest) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.public.port)
    writer.write(HEAD + b"transfer-encoding: chunked\r\nauthorization: x\r\n\r\n")
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
    assert answer.startswith(b"HTTP/1.1 401")
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(send_for_ever(writer), 20)
    writer.close()


async def send_for_ever(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")
        await writer.drain()
        await asyncio.sleep(0)


async def test_small_answers_are_not_held_back_by_the_kernel(gateway: GatewayUnderTest) -> None:
    _reader, writer = await asyncio.open_connection("127.0.0.1", gateway.gateway.public.port)
    connections = gateway.gateway.public.server_state.connections
    await eventually(lambda: len(connections) == 1)
    for connection in connections:
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    writer.close()


async def test_an_offered_upgrade_is_declined_and_the_body_is_a_body(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    inner = b"POST /v1/completions HTTP/1.1\r\nhost: g\r\n\r\n"
    offer = HEAD + b"connection: Upgrade\r\nupgrade: h2c\r\n"
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    last = b"GET /healthz HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n"
    for head, body in (
        (offer + b"content-length: %d\r\n\r\n" % len(BODY), BODY),
        (offer + b"transfer-encoding: chunked\r\n\r\n", chunked),
    ):
        for pieces in ((head + body,), (head, body), (head, body[:3], body[3:])):
            engine.requests.clear()
            answer = await exchange(served, *pieces, last)
            assert answer.count(b"HTTP/1.1 200 OK") == 2, answer
            assert [body for _, body in engine.requests] == [BODY]
    # A body that looks like a request is never taken for one.
    head = offer + b"content-length: %d\r\n\r\n" % len(inner)
    answer = await exchange(served, head, inner, last)
    assert answer.count(b"HTTP/1.1 400") == 1
    assert answer.count(b"HTTP/1.1 200") == 1
    assert answer.count(b"HTTP/1.1 ") == 2


async def test_a_trailer_is_no_header(served: GatewayUnderTest, engine: FakeEngine) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\n"
    head += b"connection: close\r\n"
    chunked = b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n" % (len(BODY), BODY)
    trailer = f"authorization: Bearer {KEY_A}\r\n\r\n".encode()
    status, _, _ = parts(await exchange(served, head + chunked + trailer))
    assert status == 401
    assert engine.requests == []


async def test_endless_trailers_are_cut_off(served: GatewayUnderTest, engine: FakeEngine) -> None:
    chunked = b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nx: " % (len(BODY), BODY)
    # More than one read of a socket takes in.
    answer = b"HTTP/1.1 431"
    # What was not read any more resets the connection, which may overtake the answer.
    with contextlib.suppress(ConnectionError):
        answer = await exchange(served, HEAD + chunked, b"a" * (16 * MAX_HEAD_BYTES))
    assert answer.startswith(b"HTTP/1.1 431")
    assert engine.requests == []


async def test_a_request_names_one_host(served: GatewayUnderTest, engine: FakeEngine) -> None:
    none = REQUEST.replace(b"host: g\r\n", b"")
    two = REQUEST.replace(b"host: g\r\n", b"host: g\r\nhost: h\r\n")
    for request in (none, two):
        status, _, body = parts(await exchange(served, request))
        assert status == 400
        assert "Host" in json.loads(body)["error"]["message"]
    assert engine.requests == []


async def test_every_answer_has_a_request_id(gateway: GatewayUnderTest) -> None:
    gateway.gateway.member.draining = True
    for path, expected in ((b"/healthz", 200), (b"/readyz", 503)):
        request = b"GET %s HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n" % path
        status, head, _ = parts(await exchange(gateway, request))
        assert status == expected
        assert b"x-request-id: " in head
        assert (b"retry-after: 1" in head) == (expected == 503)


async def test_a_fault_of_ours_has_the_shape_too(
    gateway: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(head: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(gateway.gateway.gate, "authenticate", broken)
    request = b"GET /v1/models HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n"
    status, head, body = parts(await exchange(gateway, request))
    assert status == 500
    assert b"x-request-id: " in head
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
