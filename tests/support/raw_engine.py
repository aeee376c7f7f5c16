"""An engine that answers with given bytes and then does something to the connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

End = Literal["close", "reset", "hang", "keep"]


class RawEngine:
    """`answer` goes out to each request, then the connection is treated as `end` says."""

    def __init__(self) -> None:
        self.answer = b""
        self.end: End = "close"
        self.bodies = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
                await reader.readexactly(length)
                self.bodies += 1
                end = self.end
                # In two pieces, so that the first has gone when the connection breaks.
                half = len(self.answer) // 2
                for piece in (self.answer[:half], self.answer[half:]):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.01)
                if end == "keep":
                    continue
                if end == "hang":
                    await reader.read()
                break
        if self.end == "reset":
            writer.transport.abort()
        writer.close()


@asynccontextmanager
async def raw_engine() -> AsyncIterator[RawEngine]:
    """Run one on a free port of 127.0.0.1."""
    engine = RawEngine()
    server = await asyncio.start_server(engine.serve, "127.0.0.1", 0)
    engine.port = server.sockets[0].getsockname()[1]
    async with server:
        yield engine
