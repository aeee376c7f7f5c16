"""A TCP forwarder that a test can cut, to take a server away from one client alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable


class TcpProxy:
    """Forwards connections to a port on 127.0.0.1 until `cut`, and again after `mend`.

    It listens on `host`; `heard` is given what clients send, in the pieces in which it comes.
    """

    def __init__(
        self, target: int, *, host: str = "127.0.0.1", heard: Callable[[bytes], None] | None = None
    ) -> None:
        self._target = target
        self._host = host
        self._heard = heard or (lambda _data: None)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def mend(self) -> None:
        """Take connections."""
        self._server = await asyncio.start_server(self._accept, self._host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Refuse new connections and break those that stand."""
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers.add(far_writer)
        if writer.is_closing():
            far_writer.transport.abort()
        await asyncio.gather(
            self._pump(reader, far_writer, self._heard),
            self._pump(far_reader, writer, lambda _data: None),
        )
        self._writers -= {writer, far_writer}

    @staticmethod
    async def _pump(
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        heard: Callable[[bytes], None],
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                heard(data)
                writer.write(data)
                await writer.drain()
        writer.close()
