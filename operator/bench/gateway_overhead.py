# ruff: noqa: INP001 - a script, not a package
"""What the gateway adds to a request: latency at concurrency 1, throughput and CPU at 32.

Run from the repository's root: `python operator/bench/gateway_overhead.py`. Upstream, gateway and
load each have a process; rounds with and without the gateway alternate, so that a busy machine
weighs on both. Differences below a fifth are noise. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.fake_engine import FakeEngine, replies
from tests.support.gateway import KEY_A, gateway_under_test

ANSWER = {"id": "chatcmpl-1", "choices": [{"message": {"content": "x" * 480}}]}
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "y" * 350}]}).encode()
HEADERS = {"Authorization": f"Bearer {KEY_A}", "Content-Type": "application/json"}
ROUNDS, ONE_BY_ONE, AT_ONCE, CONCURRENCY = 5, 300, 2000, 32


async def upstream(pipe: Connection) -> None:
    """A mock engine with a fixed short answer."""
    engine = FakeEngine(replies(200, ANSWER))
    await engine.start()
    pipe.send(engine.port)
    await asyncio.to_thread(pipe.recv)


async def gateway(pipe: Connection) -> None:
    """The gateway, its view filled by hand; tells the CPU seconds it has used when asked."""
    port = await asyncio.to_thread(pipe.recv)
    with tempfile.TemporaryDirectory() as folder:
        async with gateway_under_test(Path(folder)) as running:
            running.put_service()
            running.put_ports(port)
            pipe.send(running.gateway.public.port)
            while await asyncio.to_thread(pipe.recv):
                used = os.times()
                pipe.send(used.user + used.system)


async def load(session: aiohttp.ClientSession, url: str, requests: int) -> list[float]:
    """Seconds of each of `requests` requests, one after the other."""
    taken = []
    for _ in range(requests):
        began = time.perf_counter()
        async with session.post(url, data=BODY, headers=HEADERS) as response:
            await response.read()
            response.raise_for_status()
        taken.append(time.perf_counter() - began)
    return taken


async def measure(direct: str, through: str, cpu_seconds: Callable[[], float]) -> dict[str, float]:
    """Alternate both ways; medians over the rounds."""
    alone: list[float] = []
    behind: list[float] = []
    rates: list[float] = []
    cpu: list[float] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for _ in range(ROUNDS):
            alone += await load(session, direct, ONE_BY_ONE)
            behind += await load(session, through, ONE_BY_ONE)
            used, began = cpu_seconds(), time.perf_counter()
            each = AT_ONCE // CONCURRENCY
            await asyncio.gather(*(load(session, through, each) for _ in range(CONCURRENCY)))
            rates.append(each * CONCURRENCY / (time.perf_counter() - began))
            cpu.append((cpu_seconds() - used) / (each * CONCURRENCY))
    p50, p99 = (statistics.quantiles(behind, n=100)[at] for at in (49, 98))
    base50, base99 = (statistics.quantiles(alone, n=100)[at] for at in (49, 98))
    return {
        "added_ms_p50": round((p50 - base50) * 1e3, 3),
        "added_ms_p99": round((p99 - base99) * 1e3, 3),
        "requests_per_second_c32": round(statistics.median(rates)),
        "cpu_ms_per_request_c32": round(statistics.median(cpu) * 1e3, 3),
    }


def in_process(part: Callable[[Connection], Coroutine[Any, Any, None]]) -> Connection:
    """Run a part in a process of its own; our end of its pipe."""
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    if os.fork() == 0:
        ours.close()
        uvloop.run(part(theirs))
        os._exit(0)
    theirs.close()
    return ours


def main() -> None:
    """Measure and print."""
    engine, proxy = in_process(upstream), in_process(gateway)
    port = engine.recv()
    proxy.send(port)
    public = proxy.recv()

    def cpu_seconds() -> float:
        proxy.send(True)
        return float(proxy.recv())

    path = "/v1/chat/completions"
    ways = (f"http://127.0.0.1:{port}{path}", f"http://127.0.0.1:{public}{path}")
    result = uvloop.run(measure(*ways, cpu_seconds))
    engine.send(False)
    proxy.send(False)
    for _ in range(2):
        os.wait()
    sys.stdout.write(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
