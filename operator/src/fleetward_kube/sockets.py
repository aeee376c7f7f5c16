"""Every socket a session opens, so that leaving it leaves none open."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import weakref

from aiohttp import AddrInfoType

_LOOKS = 200
_LOOK_S = 0.005


class Sockets:
    """A socket factory for aiohttp's connector that remembers what it made.

    A connection over TLS that is dropped half-way (a cancelled watch, a handshake in progress)
    waits for the peer's goodbye, up to 30 s in asyncio, and a session's close does not wait for
    it. `end` does.
    """

    def __init__(self) -> None:
        self._made: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def make(self, address: AddrInfoType) -> socket.socket:
        """A socket for one connection attempt, as `aiohttp.TCPConnector(socket_factory=)` asks."""
        family, kind, protocol, _, _ = address
        made = socket.socket(family=family, type=kind, proto=protocol)
        self._made.add(made)
        return made

    def open(self) -> list[socket.socket]:
        """Those that have not been closed."""
        return [made for made in self._made if made.fileno() != -1]

    async def end(self) -> None:
        """Break off what is still open and wait, at most a second, until the loop has closed it."""
        for left in self.open():
            # Not a close: the transport owns the descriptor, and learns of the end by reading it.
            with contextlib.suppress(OSError):
                left.shutdown(socket.SHUT_RDWR)
        for _ in range(_LOOKS):
            if not self.open():
                return
            await asyncio.sleep(_LOOK_S)
