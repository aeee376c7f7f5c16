"""How long KV outlives its time in a real engine: what still answers, and bytes still there.

Half of the prompts wait for their time in an idle engine, half beside a tenant that decodes. In the
idle engine the process's wall clock jumps by an hour, forth and back, meanwhile: times to live are
of the monotonic clock. (Beside decodes it does not: identities would be out of their time.)
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from e2e.isolation.load import decoding
from fleetward_api.bundle import Retention, RetentionClass
from fleetward_engine.engine import Engine
from tests.support.engine_server import MODEL, RunningEngine, push
from tests.support.tiny_server import blocks_of, kv_of, tiny_server

TTLS_MS = (700, 1100, 1900, 2600)
CLASSES = {
    **{f"idle-{ms}": RetentionClass(store="Device", idle_ttl_ms=ms) for ms in TTLS_MS},
    **{f"max-{ms}": RetentionClass(store="Device", max_ttl_ms=ms) for ms in TTLS_MS},
}
PROMPTS_PER_CLASS = 8
HOUR_S = 3600.0
POLL_S = 0.002


@dataclass(slots=True)
class Lifetimes:
    """Blocks watched; seconds from a block's deadline until its bytes were gone, worst and first.

    `answered` prompts were found after their time, of `asked` that were asked just after it.
    """

    blocks: int = 0
    latest: float = 0.0
    earliest: float = 0.0
    asked: int = 0
    answered: int = 0


@dataclass(slots=True)
class _Wall:
    offset: float = 0.0

    def __call__(self) -> float:
        return time.time() + self.offset


@dataclass(slots=True)
class _Watch:
    """Sees each block's bytes go, from a thread of its own."""

    kv: NDArray[np.uint64]
    deadlines: dict[int, float]
    gone: dict[int, float] = field(default_factory=dict)

    def run(self, until: float) -> None:
        left = set(self.deadlines)
        while left and time.monotonic() < until:
            for block in list(left):
                if not self.kv[:, block].any():
                    self.gone[block] = time.monotonic()
                    left.discard(block)
            time.sleep(POLL_S)
        for block in left:
            self.gone[block] = float("inf")


async def lifetimes() -> Lifetimes:
    """Both halves, one after the other."""
    result, wall = Lifetimes(), _Wall()
    with tempfile.TemporaryDirectory(prefix="fleetward-lifetimes-") as folder:
        policy = push(1, retention=Retention(classes=CLASSES))
        async with tiny_server(Path(folder), num_blocks=2048, policy=policy, wall=wall) as (
            server, engine,
        ):  # fmt: skip
            await _half(server, engine, result, tenant="idle", jumps=wall)
            async with decoding(server):
                await _half(server, engine, result, tenant="beside")
            await _ask_after(server, engine, result)
    return result


async def _half(
    server: RunningEngine, engine: Engine, result: Lifetimes, *, tenant: str,
    jumps: _Wall | None = None,
) -> None:  # fmt: skip
    await asyncio.gather(
        *(_ask(server, tenant, name, f"{name} {number} of {tenant} ")
          for name in CLASSES for number in range(PROMPTS_PER_CLASS))
    )  # fmt: skip
    deadlines = await server.assembly.service.loop.call(lambda one: _deadlines(one, tenant))
    watch = _Watch(kv_of(engine), deadlines)
    until = max(deadlines.values()) + 5.0
    with _running(watch, until) as thread:
        for offset in (HOUR_S, -HOUR_S, 0.0):
            if jumps is not None:
                jumps.offset = offset
            await asyncio.sleep(max(TTLS_MS) / 3000)
        await asyncio.to_thread(thread.join)
    late = [watch.gone[block] - deadline for block, deadline in deadlines.items()]
    result.blocks += len(late)
    result.latest = max(result.latest, *late)
    result.earliest = min([result.earliest or float("inf"), *late])


async def _ask_after(server: RunningEngine, engine: Engine, result: Lifetimes) -> None:
    """Ask again a moment after a prompt's time, when its bytes may still be there."""
    for name in CLASSES:
        prompt = f"{name}, asked again just after its time"
        await _ask(server, "again", name, prompt)
        await _ask(server, "again", name, prompt)
        deadlines = await server.assembly.service.loop.call(lambda one: _deadlines(one, "again"))
        await asyncio.sleep(max(0.0, max(deadlines.values()) - time.monotonic()) + POLL_S)
        result.asked += 1
        result.answered += await _ask(server, "again", name, prompt) > 0


async def _ask(server: RunningEngine, tenant: str, name: str, prompt: str) -> int:
    body = {"model": MODEL, "prompt": prompt * 3, "max_tokens": 1}
    headers = server.identity(tenant, retention_class=name)
    answer = await server.http.post(server.url + "/v1/completions", json=body, headers=headers)
    answer.raise_for_status()
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


def _deadlines(engine: Engine, tenant: str) -> dict[int, float]:
    index = engine._kv_cache.index  # noqa: SLF001 - when each block is due is what is measured
    entries = ((block, index.entry_of(block)) for block in blocks_of(engine, tenant))
    return {block: entry.deadline for block, entry in entries if entry is not None}


@contextmanager
def _running(watch: _Watch, until: float) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=watch.run, args=(until,))
    thread.start()
    yield thread
    thread.join()
