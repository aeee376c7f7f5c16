"""``x-request-id`` on every response, whoever makes it."""

from __future__ import annotations

import re
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = b"x-request-id"
_ACCEPTABLE = re.compile(rb"[A-Za-z0-9._-]{1,128}")


class RequestIds:
    """The outermost ASGI layer: keeps the caller's id when it is well-formed, else makes one."""

    def __init__(self, app: ASGIApp, *, new_id: Callable[[], str]) -> None:
        self._app = app
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add the header to the start of the response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = request_id_of(scope["headers"]) or self._new_id().encode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (HEADER, request_id)]
            await send(message)

        await self._app(scope, receive, send_with_id)


def request_id_of(headers: list[tuple[bytes, bytes]]) -> bytes | None:
    """The caller's request id: 1 to 128 characters of ``[A-Za-z0-9._-]``, or None."""
    value = next((value for name, value in headers if name == HEADER), b"")
    return value if _ACCEPTABLE.fullmatch(value) else None
