"""The HTTP connection, with the bounds that uvicorn leaves open.

It adds: limits on the size of a request's head and body and on the time that the head may take, a
limit on how long a client may take nothing of its answer, error bodies in OpenAI's shape where no
application is reached, and a way for the application to reset a connection. What two readers could
frame or address differently is refused and the connection closed (`server.framing`); it takes no
trailer for a header, and declines every upgrade by going on in HTTP/1.1.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from fleetward_api.openai import CODE_INVALID_VALUE
from fleetward_gateway.problem import Problem, too_large
from fleetward_gateway.proxy.asgi import ABORT_EXTENSION
from fleetward_gateway.server.close_delimited import CloseDelimited
from fleetward_gateway.server.framing import declared_length, fault_of_head, framing_header
from fleetward_gateway.server.refusal import head_too_large, last_answer, not_http

MAX_HEAD_BYTES: Final = 1 << 16
HEAD_S: Final = 15.0
LATE_S: Final = 1.0
LINGER_S: Final = 1.0
"""Seconds between a refusal and the close under a client that may still be sending its body: a
close with unread bytes resets the connection, and a reset may overtake the refusal."""


class GatewayProtocol(HttpToolsProtocol):
    """One client connection; see `bounded_protocol` for its two settings."""

    max_body: ClassVar[int] = 2 << 20
    write_stall_s: ClassVar[float] = 60.0

    _head_open = True
    _head_bytes = 0
    _head_due = 0.0
    _body_bytes = 0
    _unanswered = 0
    _since_body = 0
    _resuming = False
    _ended = False
    _fault: Problem | None = None
    _parting: Problem | None = None
    _answering: RequestResponseCycle | None = None
    _head_timer: asyncio.TimerHandle | None = None
    _end_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    @property
    def resting(self) -> bool:
        """Whether it has carried a request and is now idle; a new connection is not."""
        # Before the first request there is no cycle, whatever its declared type says.
        used = cast("RequestResponseCycle | None", self.cycle) is not None
        return used and not self._unanswered and not self._head_bytes

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected: its first head must come in time."""
        super().connection_made(transport)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        self._disarm()
        self._took_some()
        if self._end_timer is not None:
            self._end_timer.cancel()
        if self._answering is not None:
            # The last request that came hears of it below; this one is answered before it.
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if self._ended:
            self.flow.pause_reading()
            return
        if self._head_open:
            self._head_bytes += len(data)
            if self._head_timer is None:
                self._arm()
        elif not self.cycle.response_complete:
            self._since_body += len(data)
        self._feed(data)
        if max(self._head_bytes if self._head_open else 0, self._since_body) > MAX_HEAD_BYTES:
            self._refuse(head_too_large(MAX_HEAD_BYTES))

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
        version = self.parser.get_http_version()
        if fault := fault_of_head(self.headers, target=self.url, version=version):
            raise self._faulty(Problem(400, CODE_INVALID_VALUE, fault))
        if declared_length(self.headers) > self.max_body:
            raise self._faulty(too_large(self.max_body))
        self._head_open = False
        self._head_bytes = 0
        self._body_bytes = 0
        self._since_body = 0
        self._unanswered += 1
        self._disarm()
        before, waiting = self.cycle, len(self.pipeline)
        if version == "1.1":
            super().on_headers_complete()
        else:
            whole_app = self.app
            self.app = framed = CloseDelimited(whole_app)
            super().on_headers_complete()
            framed.cycle, self.app = self.cycle, whole_app
        if self.pipeline and not waiting:
            # Who reads no more does not hear the client leave; two that wait are enough to hold.
            self._answering = before
            self.flow.resume_reading()

    def on_body(self, body: bytes) -> None:
        """A piece of a request's body."""
        self._since_body = 0
        self._body_bytes += len(body)
        super().on_body(body)
        if self._body_bytes > self.max_body:
            # The application hears of it with the next piece that it asks for, and refuses.
            self.flow.pause_reading()
            if self.cycle.response_complete:
                self._end(linger=True)

    def on_message_complete(self) -> None:
        """The body of a request is here."""
        if self.parser.should_upgrade() and framing_header(self.headers):
            # The parser takes what follows for another protocol's: the body is still to come.
            return
        super().on_message_complete()
        self._head_open = True
        self._since_body = 0

    def on_response_complete(self) -> None:
        """An answer is complete: what came after its request may be refused now."""
        self._unanswered -= 1
        self._answering = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        if self.transport.is_closing():
            # The rest is flushed first, for as long as the client takes some of it.
            self._takes_nothing()
        elif self._body_bytes > self.max_body:
            self._end(linger=True)
        elif self._parting is not None and not self._unanswered:
            self._say(self._parting)

    def pause_writing(self) -> None:
        """The client takes its answer more slowly than it comes."""
        super().pause_writing()
        self._takes_nothing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        self._took_some()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing came since the last answer; a client that has not taken it never will."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def _feed(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            while data:
                data = self._fed(data)
        except httptools.HttpParserError:
            self._refuse(self._fault or not_http())

    def _fed(self, data: bytes) -> bytes:
        """Parse up to the end of a head that offers an upgrade; what is left after it."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            # Declined by going on (RFC 9110, 7.8). Left to itself the parser would take the body
            # for the next request, or for nothing after `Connection: close`; so a fresh one is
            # given a head that says how the body is framed.
            if framing := framing_header(self.headers):
                self._resuming = True
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                self.parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n\r\n" % framing)
                self._resuming = False
            return data[offer.args[0] :]
        return b""

    def _faulty(self, problem: Problem) -> httptools.HttpParserError:
        self._fault = problem
        return httptools.HttpParserError(problem.message)

    def _refuse(self, problem: Problem) -> None:
        """Read no more, and say why after the answers to the requests before this one."""
        if self._ended or self.transport.is_closing():
            return
        self._ended = True
        self._disarm()
        if not self._head_open and not self._withdraw():
            return
        if self._unanswered:
            self._parting = problem
        else:
            self._say(problem)

    def _withdraw(self) -> bool:
        """Give up on the request whose body is at fault; False when it has its answer."""
        if self.pipeline:
            self.pipeline.popleft()
        elif not self.cycle.response_started:
            # Its application hears that the client left, and what it still sends is dropped.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        else:
            # A second answer to one request could be taken for another request's.
            self.cycle.keep_alive = False
            if self.cycle.response_complete:
                self._end(linger=False)
            return False
        self._unanswered -= 1
        return True

    def _say(self, problem: Problem) -> None:
        self.transport.write(last_answer(problem))
        self._end(linger=problem.status != 400)  # noqa: PLR2004

    def _end(self, *, linger: bool) -> None:
        """Read no more and close, at once or when the client had time to see the answer."""
        self._ended = True
        self._unset_keepalive_if_required()
        if linger:
            self.flow.pause_reading()
            self._end_timer = self.loop.call_later(LINGER_S, self.transport.abort)
        else:
            self.transport.close()

    def _arm(self) -> None:
        self._head_due = self.loop.time() + HEAD_S
        self._head_timer = self.loop.call_at(self._head_due, self._too_slow)

    def _disarm(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._head_timer = None
        if self._unanswered or self.loop.time() > self._head_due + LATE_S:
            # Stray bytes came after a request that is still being answered, or we were held up
            # ourselves and have not read what is there: not a slow head.
            self._arm()
        else:
            self.transport.abort()

    def _takes_nothing(self) -> None:
        if self._stall_timer is None:
            self._stall_timer = self.loop.call_later(self.write_stall_s, self.transport.abort)

    def _took_some(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None


def bounded_protocol(*, max_body: int, write_stall_s: float) -> type[GatewayProtocol]:
    """The protocol of one listener.

    Args:
        max_body: bytes of a request's body that any route may read.
        write_stall_s: seconds for which a client may take nothing of what is sent to it.
    """
    settings = {"max_body": max_body, "write_stall_s": write_stall_s}
    return type("BoundedProtocol", (GatewayProtocol,), settings)
