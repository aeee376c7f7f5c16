"""The connection to engines: one try of one request."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self
from weakref import WeakValueDictionary

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import AddrInfoType
from aiohttp.tracing import Trace
from yarl import URL

from fleetward_gateway.proxy.flight import Flight

CONNECT_S = 3.0
CONNECTING_AT_ONCE = 64
"""To one engine; more than that wait their turn. When thousands of requests come together, all
their handshakes would be as late as this process is busy, and the engine would pass for dead."""

KEEPALIVE_S = 30.0
"""Shorter than an engine's own (75 s), so that we never send on a connection it is closing."""

RECEIVE_BUFFER = 1 << 16
"""Of the kernel, per connection. The event loop reads all of it at once: this, and not the buffer
of the HTTP client, bounds what an engine that floods can have us hold for one slow reader."""

READ_BUFFER = 1 << 15


class NotDelivered(Exception):
    """Nothing of the body left the gateway: another engine may be tried."""


class UpstreamLost(Exception):
    """The engine may have begun to work: it must not be given to another one."""


class UpstreamStalled(Exception):
    """The engine said nothing for too long."""


class Upstream:
    """A pool of connections to engines; use it as an async context manager.

    Args:
        first_byte_s: seconds to wait for an answer's head; a non-streamed answer has none before
            it is complete.
    """

    def __init__(self, *, first_byte_s: float) -> None:
        self._first_byte_s = first_byte_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=PacedConnector(
                limit=0, keepalive_timeout=KEEPALIVE_S, socket_factory=_small_socket
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=READ_BUFFER,
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def open(
        self, address: str, path: str, *, headers: dict[str, str], flight: Flight
    ) -> aiohttp.ClientResponse:
        """Send the request; the answer once its head is here.

        Raises:
            NotDelivered: no connection came about.
            UpstreamLost: the connection broke after the body was handed to it.
            UpstreamStalled: no head within the limit.
        """
        if self._session is None:
            raise RuntimeError("Upstream is used outside its `async with` block")
        try:
            async with asyncio.timeout(self._first_byte_s):
                return await self._session.post(
                    URL(f"http://{address}{path}", encoded=True),
                    data=_handed_over(flight),
                    headers=headers,
                    allow_redirects=False,
                )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if flight.held_bytes is not None:
                raise NotDelivered(str(error)) from error
            if isinstance(error, TimeoutError):
                raise UpstreamStalled from error
            raise UpstreamLost(str(error)) from error


class PacedConnector(aiohttp.TCPConnector):
    """Makes few connections to one engine at a time; the limit on each counts from its turn."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # Kept while anybody holds them.
        self._paces: WeakValueDictionary[tuple[str | None, int | None], asyncio.Semaphore]
        self._paces = WeakValueDictionary()

    async def _create_connection(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - it overrides
    ) -> ResponseHandler:
        # Not around `connect`: who finds a connection in the pool waits for no handshake, and who
        # asks one engine waits for no other's.
        address = (req.url.host, req.url.port)
        pace = self._paces.get(address)
        if pace is None:
            pace = self._paces[address] = asyncio.Semaphore(CONNECTING_AT_ONCE)
        async with pace:
            return await super()._create_connection(req, traces, timeout)


def _small_socket(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    # The kernel doubles it, for its own books.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER // 2)
    return made


async def _handed_over(flight: Flight) -> AsyncIterator[bytes]:
    # Runs once a connection stands: from here on the body is not ours to send again.
    yield flight.take_body()
