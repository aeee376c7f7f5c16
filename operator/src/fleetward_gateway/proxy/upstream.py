"""The connection to engines: one try of one request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

import aiohttp
from yarl import URL

from fleetward_gateway.proxy.flight import Flight

CONNECT_S = 3.0
KEEPALIVE_S = 30.0
"""Shorter than an engine's own (75 s), so that we never send on a connection it is closing."""

READ_BUFFER = 1 << 16


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
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
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


async def _handed_over(flight: Flight) -> AsyncIterator[bytes]:
    # Runs once a connection stands: from here on the body is not ours to send again.
    yield flight.take_body()
