"""A real engine process for tests: the simulated runner, no governance, faults on demand."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from e2e.cluster.ports import free_port

MODEL = "demo"
TEXT = "/v1/completions"
HELD = (
    "num_requests", "num_requests_running", "num_requests_waiting", "num_requests_unfinished",
    "num_open_responses", "num_connections", "num_tasks", "kv_cache_usage_perc",
    "kv_block_references",
)  # fmt: skip
"""Gauges that are back at their baseline once every client is gone."""


@dataclass(slots=True)
class EngineProcess:
    """One child and how to reach it. Touch `trigger` to let the fault begin."""

    child: asyncio.subprocess.Process
    http: httpx.AsyncClient
    port: int
    metrics_port: int
    trigger: Path
    termination: Path

    async def ready(self, *, within_s: float = 60.0) -> None:
        """Return once the engine takes requests."""
        async with asyncio.timeout(within_s):
            while not await self.says("/ready"):
                assert self.child.returncode is None, "the engine ended"
                await asyncio.sleep(0.05)

    async def says(self, path: str, *, timeout_s: float = 5.0) -> bool:
        """Whether a probe succeeds, as the kubelet asks: a new connection each time."""
        return await self.status(path, timeout_s=timeout_s) == 200

    async def status(self, path: str, *, timeout_s: float) -> int | None:
        """The status a probe is answered with, None where no answer came in time."""
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            async with httpx.AsyncClient(timeout=timeout_s, verify=False) as http:  # noqa: S501
                return (await http.get(url)).status_code
        except httpx.TransportError:
            return None

    async def metrics(self) -> dict[str, float]:
        """Every series without labels by its short name, and `leaks` over all kinds."""
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        async with httpx.AsyncClient(timeout=30, verify=False) as http:  # noqa: S501
            page = (await http.get(url)).text
        plain = re.findall(r"^fleetward_engine_(\w+) (\S+)$", page, re.MULTILINE)
        leaks = re.findall(r"^fleetward_engine_leaks_total\{.*\} (\S+)$", page, re.MULTILINE)
        assert leaks
        return {**{name: float(value) for name, value in plain}, "leaks": sum(map(float, leaks))}

    async def held(self) -> dict[str, float]:
        """What is held for clients now."""
        seen = await self.metrics()
        return {name: seen[name] for name in (*HELD, "leaks")}


@dataclass(frozen=True, slots=True)
class Ending:
    """How one request ended: its status, its last event or body, when (monotonic seconds)."""

    status: int
    last: dict[str, Any] | str
    events: int
    at: float


async def ask(
    engine: EngineProcess, *, stream: bool, begun: asyncio.Event | None = None, **fields: Any
) -> Ending:
    """One completion, read to its end."""
    body = {"model": MODEL, "prompt": "x", "max_tokens": 1500, "stream": stream, **fields}
    pieces: list[str] = []
    async with engine.http.stream("POST", TEXT, json=body) as answer:
        async for piece in answer.aiter_text():
            pieces.append(piece)
            if begun is not None:
                begun.set()
    at = time.monotonic()
    events = [each.removeprefix("data: ") for each in "".join(pieces).split("\n\n") if each]
    last = events[-1]
    told = last if last == "[DONE]" else json.loads(last)
    return Ending(answer.status_code, told, len(events), at)


@asynccontextmanager
async def engine_process(
    folder: Path,
    *,
    fault: str = "hang",
    step_ms: float = 5.0,
    prefill: int = 1_000_000,
    **flags: Any,
) -> AsyncIterator[EngineProcess]:
    """Start one, and kill it in the end; `prefill` is tokens a second, `a_b=1` flag `--a-b 1`."""
    profile = write_profile(folder, step_ms=step_ms, prefill=prefill)
    port, metrics_port = free_port(), free_port()
    trigger, termination = folder / "trigger", folder / "termination"
    given: dict[str, Any] = {
        "model": "package://none", "served_model_name": MODEL, "host": "127.0.0.1",
        "port": port, "metrics_port": metrics_port, "pid_file": folder / "pid",
        "termination_log": termination, "runner": "simulated", "simulation_profile": profile,
        "block_size": 16, "kv_cache_memory_bytes": 64 * 16 * 4096, **flags,
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.support.sabotage", fault, str(trigger), "serve"]
    command += ["--insecure-local"]
    for name, value in given.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    with (folder / "log").open("wb") as log:
        child = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
    base = f"http://127.0.0.1:{port}"
    limits = httpx.Limits(max_connections=None)
    try:
        async with httpx.AsyncClient(base_url=base, timeout=600, limits=limits) as http:
            yield EngineProcess(child, http, port, metrics_port, trigger, termination)
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


def write_profile(folder: Path, *, step_ms: float, prefill: int) -> Path:
    """A simulation of cheap, small blocks."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "profile.json"
    profile = {
        "decode_step_ms": {"1": step_ms},
        "prefill_tokens_per_second": prefill,
        "kv_bytes_per_token": 64,
        "max_model_len": 8192,
    }
    path.write_text(json.dumps(profile))
    return path
