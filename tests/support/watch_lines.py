"""A watch as it goes over the wire, line by line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import aiohttp


async def whole_lines(
    upstream: aiohttp.ClientResponse, *, until: asyncio.Future[bytes]
) -> AsyncGenerator[bytes, None]:
    """Whole lines of a watch, then what `until` gives, if it comes first."""
    pending = bytearray()
    while True:
        reading = asyncio.ensure_future(upstream.content.readany())
        try:
            await asyncio.wait({reading, until}, return_when=asyncio.FIRST_COMPLETED)
            if until.done():
                if until.result():
                    yield until.result()
                return
            chunk = reading.result()
        finally:
            if not reading.done():
                reading.cancel()
        if not chunk:
            return
        pending += chunk
        whole, newline, rest = pending.rpartition(b"\n")
        if newline:
            yield bytes(whole + newline)
            pending = bytearray(rest)
