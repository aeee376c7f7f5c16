"""An engine's answer to the client: streams event by event, short answers whole, errors mended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import aiohttp

from fleetward_api.json_text import parse_json
from fleetward_api.openai import CODE_INVALID_IDENTITY, CODE_UPSTREAM_FAILED
from fleetward_gateway.problem import Problem, bounded_retry_after
from fleetward_gateway.proxy.asgi import Answer, ClientStalled, Headers
from fleetward_gateway.proxy.body import BodyBudget
from fleetward_gateway.proxy.dispatch import lost, stalled
from fleetward_gateway.proxy.events import EventCutter
from fleetward_gateway.proxy.headers import client_headers

MAX_WHOLE: Final = 1 << 20
"""Answers up to this size are read before anything goes out, so that a dying engine is a 503."""

SMALL: Final = 1 << 17
"""What any answer may hold of that; a larger one needs room, since its reader may be slow."""

MAX_ERROR: Final = 1 << 16
_OK: Final = 200
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_ERRORS: Final = range(400, 600)
_RETRYABLE: Final = frozenset({429, 503})
_NOT_THE_CLIENTS: Final = frozenset({401, 403, 404, 409})
"""What an engine says about the gateway's own doing, or while it changes, and never to a client."""


class TruncatedAnswer(Exception):
    """The engine died in an answer that has no way to say so: the connection must break."""


async def relay(
    response: aiohttp.ClientResponse,
    answer: Answer,
    *,
    stall_s: float,
    room: BodyBudget,
    on_first_byte: Callable[[], None],
) -> None:
    """Pass an engine's answer on.

    Args:
        response: its head is here, its body is not read.
        answer: to the client.
        stall_s: seconds of silence inside an answer after which the engine counts as stalled.
        room: bytes for whole answers above `SMALL`, over all requests; without room such an
            answer goes out as it comes.
        on_first_byte: called once, when the first byte of a success goes out.

    Raises:
        Problem: nothing has gone out yet.
        ClientStalled: the client takes nothing.
        TruncatedAnswer: the answer broke off after a part of it went out.
    """
    reader = Reader(response, stall_s=stall_s)
    if response.status != _OK or response.content_type not in {_JSON, _EVENTS}:
        raise await _mended(response, reader)
    headers = client_headers(response.raw_headers)
    if response.content_type == _EVENTS:
        await _relay_events(reader, answer, headers, on_first_byte)
    elif response.content_length is None and "chunked" not in _codings(response):
        # Its end could not be told from a break.
        raise lost()
    else:
        await _relay_json(reader, answer, headers, room=room, on_first_byte=on_first_byte)


class Reader:
    """Reads an engine's body piece by piece, with a limit on silence."""

    __slots__ = ("_content", "_stall_s", "status")

    def __init__(self, response: aiohttp.ClientResponse, *, stall_s: float) -> None:
        self._content = response.content
        self._stall_s = stall_s
        self.status = response.status

    async def next(self) -> bytes:
        """The next piece, empty at the end. Raises `Problem` when the engine is lost or stalls."""
        try:
            async with asyncio.timeout(self._stall_s):
                return await self._content.readany()
        except TimeoutError:
            raise stalled() from None
        except (aiohttp.ClientError, OSError):
            raise lost() from None

    async def all(self, limit: int) -> bytes:
        """Everything, or somewhat more than `limit` bytes of it. Raises `Problem`."""
        pieces = []
        size = 0
        while size <= limit and (piece := await self.next()):
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)


async def _relay_events(
    reader: Reader, answer: Answer, headers: Headers, on_first_byte: Callable[[], None]
) -> None:
    cutter = EventCutter()
    try:
        while piece := await reader.next():
            if data := cutter.feed(piece):
                if not answer.started:
                    on_first_byte()
                    await answer.start(reader.status, headers)
                await answer.body(data)
    except Problem as problem:
        ending = problem
    else:
        # A stream that stops before its end is broken, however politely it was closed.
        ending = lost()
    if not answer.started:
        raise ending
    await answer.finish(cutter.last(ending))


async def _relay_json(
    reader: Reader,
    answer: Answer,
    headers: Headers,
    *,
    room: BodyBudget,
    on_first_byte: Callable[[], None],
) -> None:
    data = await reader.all(SMALL)
    taken = MAX_WHOLE if len(data) > SMALL and room.has(MAX_WHOLE) else 0
    room.take(taken)
    try:
        if taken:
            data += await reader.all(MAX_WHOLE - len(data))
        if len(data) > max(SMALL, taken):
            on_first_byte()
            await _relay_bytes(data, reader, answer, headers)
            return
        if not _is_json(data):
            raise lost()
        on_first_byte()
        await answer.whole(reader.status, headers, data)
    finally:
        room.give(taken)


async def _relay_bytes(data: bytes, reader: Reader, answer: Answer, headers: Headers) -> None:
    await answer.start(reader.status, headers)
    try:
        while data:
            await answer.body(data)
            data = await reader.next()
    except Problem as problem:
        raise TruncatedAnswer from problem
    await answer.finish()


async def _mended(response: aiohttp.ClientResponse, reader: Reader) -> Problem:
    """The refusal that the client gets for an engine's."""
    content = await reader.all(MAX_ERROR)
    status = response.status
    if status in _NOT_THE_CLIENTS or status not in _ERRORS:
        code = CODE_INVALID_IDENTITY if status in {401, 403} else CODE_UPSTREAM_FAILED
        return Problem(
            503, code, "The replica could not take this request; try again.", retry_after_s=1
        )
    problem = Problem(
        status,
        CODE_UPSTREAM_FAILED,
        f"The replica refused the request with status {status}.",
        headers=_kept_headers(response),
        retry_after_s=_retry_after(response) if status in _RETRYABLE else None,
    )
    problem.shaped_body = content if _is_error_body(content) else None
    return problem


def _kept_headers(response: aiohttp.ClientResponse) -> tuple[tuple[bytes, bytes], ...]:
    ours = {b"content-type", b"retry-after"}
    return tuple(
        (name, value) for name, value in client_headers(response.raw_headers) if name not in ours
    )


def _retry_after(response: aiohttp.ClientResponse) -> int:
    given = response.headers.get("Retry-After", "")
    return bounded_retry_after(int(given)) if given.isdecimal() and given.isascii() else 1


def _codings(response: aiohttp.ClientResponse) -> str:
    return response.headers.get("Transfer-Encoding", "").lower()


def _is_json(content: bytes) -> bool:
    try:
        parse_json(content)
    except ValueError:
        return False
    return True


def _is_error_body(content: bytes) -> bool:
    try:
        value = parse_json(content)
    except ValueError:
        return False
    error = value.get("error") if isinstance(value, dict) else None
    return isinstance(error, dict) and {"message", "type", "param", "code"} <= error.keys()


__all__ = ["MAX_WHOLE", "ClientStalled", "TruncatedAnswer", "relay"]
