"""The HTTP connection, with the bounds that uvicorn leaves open.

It adds: a limit on the size of a request's head and on the time it may take, a limit on what is
still read of a body after its answer, error bodies in OpenAI's shape where no application is
reached, and a way for the application to reset a connection whose client takes nothing.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from fleetward_api.openai import CODE_INVALID_VALUE, CODE_REQUEST_TOO_LARGE
from fleetward_gateway.problem import Problem
from fleetward_gateway.proxy.asgi import ABORT_EXTENSION, kept_request_id

MAX_HEAD_BYTES: Final = 1 << 16
HEAD_S: Final = 15.0
MAX_DISCARDED_BYTES: Final = 16 << 20
_PHRASES: Final = {400: b"Bad Request", 431: b"Request Header Fields Too Large"}


class GatewayProtocol(HttpToolsProtocol):
    """One client connection."""

    _head_open = True
    _head_bytes = 0
    _discarded = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected: its first head must come in time."""
        super().connection_made(transport)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if self._head_open:
            self._head_bytes += len(data)
            if self._head_timer is None:
                self._arm()
        elif self.cycle.response_complete:
            self._discarded += len(data)
            if self._discarded > MAX_DISCARDED_BYTES:
                self.transport.abort()
                return
        super().data_received(data)
        if self._head_open and self._head_bytes > MAX_HEAD_BYTES:
            self._send_problem(
                Problem(
                    431,
                    CODE_REQUEST_TOO_LARGE,
                    f"The request's headers are larger than {MAX_HEAD_BYTES} bytes.",
                )
            )

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._head_open = True
        extensions = {ABORT_EXTENSION: self.transport.abort}
        self.scope["extensions"] = extensions  # type: ignore[typeddict-item]

    def on_headers_complete(self) -> None:
        """The head of a request is here."""
        self._head_open = False
        self._head_bytes = 0
        self._discarded = 0
        self._disarm()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body of a request is here."""
        super().on_message_complete()
        self._head_open = True

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no HTTP request."""
        self._send_problem(Problem(400, CODE_INVALID_VALUE, msg))

    def _send_problem(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        body = problem.encoded()
        status = b"%d %s" % (problem.status, _PHRASES[problem.status])
        head = (
            b"HTTP/1.1 " + status,
            b"content-type: application/json",
            b"content-length: %d" % len(body),
            b"x-request-id: " + kept_request_id(None),
            b"connection: close",
        )
        self.transport.write(b"\r\n".join(head) + b"\r\n\r\n" + body)
        self.transport.close()

    def _arm(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_S, self._too_slow)

    def _disarm(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._head_timer = None
        if self._answering():
            # Stray bytes came after a request that is still being answered: not a slow head.
            self._arm()
        else:
            self.transport.abort()

    def _answering(self) -> bool:
        # Before the first head there is no cycle, whatever its declared type says.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete


__all__ = ["HEAD_S", "MAX_HEAD_BYTES", "GatewayProtocol"]
