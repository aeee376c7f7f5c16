"""The ASGI side of one request: its headers, and the one answer that it gets."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from fleetward_gateway.problem import Problem

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

ABORT_EXTENSION: Final = "fleetward.abort"
"""Scope extension: a callable that resets the client's connection."""

JSON_TYPE: Final = (b"content-type", b"application/json")
_PIECE: Final = 1 << 16
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,128}")


class ClientGone(Exception):
    """The client left: there is nobody to answer."""


class ClientStalled(Exception):
    """The client has read nothing for too long."""


class RequestHead:
    """Headers of one request, each name once.

    A header sent twice is joined with a comma, as HTTP prescribes; so a doubled `Authorization`
    or `Content-Length` matches nothing.
    """

    __slots__ = ("_headers", "_scope", "path", "request_id")

    def __init__(self, scope: Scope) -> None:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            headers[name] = headers[name] + b", " + value if name in headers else value
        self._headers = headers
        self._scope = scope
        self.path: str = scope["path"]
        self.request_id = kept_request_id(headers.get(b"x-request-id"))

    def get(self, name: bytes) -> bytes:
        """The value of a header (lower-case name), empty when absent."""
        return self._headers.get(name, b"")

    def all(self, name: bytes) -> list[bytes]:
        """The value of each occurrence of a header (lower-case name)."""
        if name not in self._headers:
            return []
        return [value for each, value in self._scope["headers"] if each == name]


def kept_request_id(offered: bytes | None) -> bytes:
    """The client's request id when it is harmless, else a new one."""
    if offered is not None and _REQUEST_ID.fullmatch(offered):
        return offered
    return secrets.token_hex(16).encode()


class Answer:
    """Sends one response; knows what has gone out already.

    Args:
        send: the ASGI callable.
        request_id: goes into `x-request-id`.
        stall_s: seconds for which the client may refuse to take a piece. The server buffers a
            bounded amount and then waits, which is what holds a slow reader's memory down.
    """

    __slots__ = ("_send", "_stall_s", "complete", "request_id", "status")

    def __init__(self, send: Send, *, request_id: bytes, stall_s: float) -> None:
        self._send = send
        self._stall_s = stall_s
        self.request_id = request_id
        self.status = 0
        self.complete = False

    @property
    def started(self) -> bool:
        """True once the status has gone out: no other one can."""
        return self.status != 0

    async def start(self, status: int, headers: Headers) -> None:
        """Send status and headers. Raises `ClientStalled`."""
        whole = [*headers, (b"x-request-id", self.request_id)]
        await self._put({"type": "http.response.start", "status": status, "headers": whole})
        # After the call: the server writes nothing before its last wait, so a cancelled call
        # has sent nothing.
        self.status = status

    async def body(self, data: bytes) -> None:
        """Send a piece of the body. Raises `ClientStalled`."""
        await self._put({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self, data: bytes = b"") -> None:
        """Send the last piece. Raises `ClientStalled`."""
        await self._put({"type": "http.response.body", "body": data, "more_body": False})
        self.complete = True

    async def whole(self, status: int, headers: Headers, data: bytes) -> None:
        """Send a complete response."""
        length = (b"content-length", str(len(data)).encode())
        await self.start(status, [*headers, length])
        # In pieces: between them the server waits until the client has taken most of the last.
        for begin in range(0, len(data) - _PIECE, _PIECE):
            await self.body(data[begin : begin + _PIECE])
        await self.finish(data[(len(data) - 1) // _PIECE * _PIECE :] if data else b"")

    async def problem(self, problem: Problem) -> None:
        """Send a refusal; nothing may have gone out before."""
        headers = [JSON_TYPE, *problem.extra_headers()]
        await self.whole(problem.status, headers, problem.encoded())

    async def _put(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self._stall_s):
                await self._send(message)
        except TimeoutError:
            raise ClientStalled from None
