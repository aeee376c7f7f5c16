"""The line between one replica and the API server: it can be slow, hold bytes up, or lose them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal

State = Literal["open", "held", "cut"]


class Line:
    """Forwards TCP to a port on 127.0.0.1.

    While it is `held`, what the client sends is kept and delivered by `open`, even if the client
    has gone by then: so a request arrives long after it was sent. While it is `cut`, bytes of both
    sides are lost without a word, as behind a broken switch.
    """

    def __init__(self, target: int, *, delay_s: float = 0.0) -> None:
        self.port = 0
        self.caught = asyncio.Event()
        self._target = target
        self._delay_s = delay_s
        self._state: State = "open"
        self._ended = False
        self._opened = asyncio.Event()
        self._opened.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Break everything off, and wait until nothing of it runs any more."""
        if self._server is not None:
            self._server.close()
        self._ended = True
        self._opened.set()
        while self._writers:
            self._break_off()
            await asyncio.sleep(0.05)

    def hold(self) -> None:
        """Keep what the client sends from here on; `caught` is set when there is some."""
        self._state = "held"
        self.caught.clear()
        self._opened.clear()

    def cut(self) -> None:
        """Lose what either side sends from here on."""
        self._state = "cut"

    def open(self) -> None:
        """Deliver what was held; after a cut, the connections that it broke end."""
        if self._state == "cut":
            self._break_off()
        self._state = "open"
        self._opened.set()

    def _break_off(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(far_writer)
        await asyncio.gather(
            self._pump(reader, far_writer, upward=True),
            self._pump(far_reader, writer, upward=False),
        )
        self._writers -= {writer, far_writer}

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, upward: bool
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if upward and self._state == "held":
                    self.caught.set()
                    await self._opened.wait()
                if self._state == "cut":
                    continue
                if upward and self._delay_s:
                    await asyncio.sleep(self._delay_s)
                writer.write(data)
                await writer.drain()
        # The end of a stream is a word too: behind a cut nobody hears it.
        if self._state != "cut" or self._ended:
            if upward and not self._ended:
                # Time for the server to read what came late, before it learns that nobody waits.
                await asyncio.sleep(0.5)
            writer.close()
