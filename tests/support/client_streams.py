"""Clients of a gateway that stream all the time, and what became of their streams."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from e2e.chaos.scale import is_full, seed

CHAT = "/v1/chat/completions"
LENGTHS = (5, 50, 300, 1000) if is_full() else (5, 50, 200)


@dataclass(slots=True)
class Streams:
    """Clients that stream without a pause. `dropped` says of each lost answer what came."""

    session: aiohttp.ClientSession
    url: str
    model: str
    key: str
    whole: int = 0
    dropped: list[str] = field(default_factory=list)
    stop: bool = False

    async def run(self, rng: random.Random) -> None:
        while not self.stop:
            body = {
                "model": self.model,
                "messages": [{"role": "user", "content": "x"}],
                "max_tokens": rng.choice(LENGTHS),
                "stream": True,
            }
            headers = {"Authorization": f"Bearer {self.key}"}
            async with self.session.post(self.url + CHAT, json=body, headers=headers) as response:
                text = (await response.read()).decode()
            if response.status == 200 and text.endswith("data: [DONE]\n\n"):
                self.whole += 1
            else:
                self.dropped.append(f"{response.status} {text[-200:]}")


@asynccontextmanager
async def streaming(streams: Streams, count: int) -> AsyncIterator[None]:
    """Streams beside the block; those that run at its end come to theirs."""
    rng = random.Random(seed())  # noqa: S311 - how long each answer is
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(streams.run(rng))
        try:
            yield
        finally:
            streams.stop = True
