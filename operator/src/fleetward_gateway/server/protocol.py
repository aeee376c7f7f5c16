"""The HTTP connection, with the bounds that uvicorn leaves open.

It adds: a limit on the size of a request's head and on the time it may take, a limit on what is
still read of a body after its answer, error bodies in OpenAI's shape where no application is
reached, and a way for the application to reset a connection whose client takes nothing. It takes
no trailer for a header, wants one `Host`, and declines every upgrade by going on in HTTP/1.1.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

import httptools
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
    _since_body = 0
    _resuming = False
    _fault = "This is not an HTTP/1.1 request."
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
        else:
            self._since_body += len(data)
        self._feed(data)
        if max(self._head_bytes if self._head_open else 0, self._since_body) > MAX_HEAD_BYTES:
            self._send_problem(
                Problem(
                    431,
                    CODE_REQUEST_TOO_LARGE,
                    f"The request's headers are larger than {MAX_HEAD_BYTES} bytes.",
                )
            )

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._resuming:
            return
        super().on_message_begin()
        self._head_open = True
        extensions = {ABORT_EXTENSION: self.transport.abort}
        self.scope["extensions"] = extensions  # type: ignore[typeddict-item]

    def on_url(self, url: bytes) -> None:
        """A piece of the request's target."""
        if not self._resuming:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; a trailer, which comes after the body, is none."""
        if self._head_open:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head of a request is here."""
        if self._resuming:
            return
        self._head_open = False
        self._head_bytes = 0
        self._discarded = 0
        self._since_body = 0
        self._disarm()
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            self._fault = "A request must have exactly one Host header."
            raise httptools.HttpParserError(self._fault)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of a request's body."""
        self._since_body = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The body of a request is here."""
        if self.parser.should_upgrade() and self._framing():
            # The parser takes what follows for another protocol's: the body is still to come.
            return
        super().on_message_complete()
        self._head_open = True
        self._since_body = 0

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no HTTP request."""
        self._send_problem(Problem(400, CODE_INVALID_VALUE, msg))

    def _feed(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            while data:
                data = self._fed(data)
        except httptools.HttpParserError:
            self.send_400_response(self._fault)

    def _fed(self, data: bytes) -> bytes:
        """Parse up to the end of a head that offers an upgrade; what is left after it."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            # Declined by going on (RFC 9110, 7.8). Left to itself the parser would take the body
            # for the next request, so it is given a head that says how the body is framed.
            if framing := self._framing():
                self._resuming = True
                self.parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n\r\n" % framing)
                self._resuming = False
            return data[offer.args[0] :]
        return b""

    def _framing(self) -> bytes:
        """The header that frames the body of this request, empty when there is no body."""
        for name, value in self.headers:
            if name == b"transfer-encoding" or (name == b"content-length" and int(value)):
                return name + b": " + value
        return b""

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
