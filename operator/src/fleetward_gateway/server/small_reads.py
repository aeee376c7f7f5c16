"""Read a connection in pieces of 64 KiB: the event loop would take up to 256 KiB at a time.

So no more than that is read beyond any limit, and a busy sender gets no larger turn than others.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

PIECE: Final = 1 << 16
_BUFFER: Final = memoryview(bytearray(PIECE))
"""One for all connections: its bytes are taken out before anything else is read."""


class SmallReads(asyncio.BufferedProtocol):
    """Passes everything that a transport says to another protocol, and bytes in small pieces."""

    def __init__(self, inner: asyncio.Protocol) -> None:
        self._inner = inner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        self._inner.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - it asks for 256 KiB
        """Where the next bytes go."""
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        self._inner.data_received(bytes(_BUFFER[:nbytes]))

    def eof_received(self) -> bool | None:
        """The client sends no more."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """The client takes its answer more slowly than it comes."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._inner.resume_writing()


def in_small_reads(protocol: type[asyncio.Protocol]) -> type[asyncio.Protocol]:
    """A factory, in the place of the class that it wraps."""

    def build(*args: Any, **options: Any) -> SmallReads:
        return SmallReads(protocol(*args, **options))

    # The server only ever calls it.
    return build  # type: ignore[return-value]
