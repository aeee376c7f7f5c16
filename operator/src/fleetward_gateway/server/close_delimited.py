"""Answers to HTTP/1.0, which knows no chunks: one of unknown length ends with the connection."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class CloseDelimited:
    """An application whose answer has the length it states, else none (RFC 9112, 6.3).

    `cycle` is the server's side of the one request that it serves; set before it is called.
    """

    cycle: RequestResponseCycle

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request (ASGI)."""
        cycle = self.cycle
        unframed = False

        async def framed(message: Message) -> None:
            nonlocal unframed
            if message["type"] == "http.response.start":
                unframed = all(name != b"content-length" for name, _ in message["headers"])
                if unframed:
                    # The server chooses chunks only while nothing else has been chosen.
                    cycle.chunked_encoding = False
            elif unframed:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await self._app(scope, receive, framed)
