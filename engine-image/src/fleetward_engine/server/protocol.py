"""The HTTP connection, with what uvicorn leaves open: it always hears its client leave.

While a request is answered, uvicorn stops reading once a second one was sent after it, and so does
not notice that the client is gone until it writes. Here the second one is not taken: the connection
closes after the answer, which tells the client to send it again (RFC 9112, 9.3.2). What else comes
meanwhile is read and dropped. A head that does not come ends the connection, too.
"""

from __future__ import annotations

import asyncio
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

HEAD_S = 30.0


class EngineProtocol(HttpToolsProtocol):
    """One connection of the gateway, the operator, a probe or a scraper."""

    _deaf = False
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first head must come in time."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        self._forget_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if not self._deaf:
            super().data_received(data)

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        if self._head_timer is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        """A head is whole."""
        self._forget_head()
        answering = self.cycle
        super().on_headers_complete()
        if self.pipeline:
            self.pipeline.clear()
            self.cycle = answering
            self._stop_listening()
            self.flow.resume_reading()

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        if not self._deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """A body is whole."""
        if not self._deaf:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no request, unless that would land in another's answer."""
        answering = cast("RequestResponseCycle | None", self.cycle)
        if answering is None or answering.response_complete or answering.more_body:
            super().send_400_response(msg)
        else:
            self._stop_listening()

    def _stop_listening(self) -> None:
        self._deaf = True
        self.cycle.keep_alive = False

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_S, self.transport.abort)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
