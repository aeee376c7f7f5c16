"""Another tenant that decodes all the time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.engine_server import MODEL, RunningEngine
from tests.support.meanwhile import meanwhile


@asynccontextmanager
async def decoding(server: RunningEngine, *, streams: int = 1) -> AsyncIterator[None]:
    """Keep so many answers on their way; raises what one of them ended with."""
    async with meanwhile(*(_decode(server) for _ in range(streams))):
        yield


async def _decode(server: RunningEngine) -> None:
    body = {"model": MODEL, "prompt": "load", "max_tokens": 200, "ignore_eos": True}
    while True:
        headers = server.identity("load")
        url = server.url + "/v1/completions"
        (await server.http.post(url, json=body, headers=headers)).raise_for_status()
