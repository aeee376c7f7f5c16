"""A step that never ends fails the liveness probe in time; work and pauses never do."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from e2e.chaos.scale import is_full
from e2e.figures.record import record
from tests.support.engine_process import EngineProcess, ask, engine_process

PERIOD_S, FAILURES, PATIENCE_S = 5.0, 2, 5.0
"""Of the liveness probe, as the operator sets it."""
SATURATED_S = 240.0
PAUSED_S = 60.0

pytestmark = [
    pytest.mark.skipif(not is_full(), reason="minutes long; its short form is test_faults.py"),
    pytest.mark.timeout(900),
]


async def probed(engine: EngineProcess, *, for_s: float) -> int:
    """False alarms in that time: each answer that calls the engine hung, and each restart.

    The engine is asked five times as often as by the kubelet. An answer that a busy machine keeps
    from coming is no word of the engine's; it counts as the kubelet counts, twice in a row.
    """
    alarms, unheard = 0, 0
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        status = await engine.status("/health", timeout_s=PATIENCE_S)
        unheard = unheard + 1 if status is None else 0
        alarms += status not in (200, None) or unheard == FAILURES
        await asyncio.sleep(PERIOD_S / 5)
    return alarms


async def saturate(folder: Path, *, prefill: int, clients: int) -> int:
    """False alarms of an engine with more long prompts than it can ever serve."""
    async with engine_process(folder, prefill=prefill, max_num_batched_tokens=1024) as engine:
        await engine.ready()
        asked = [
            asyncio.create_task(ask(engine, stream=bool(n % 2), prompt="x" * 5000, max_tokens=3000))
            for n in range(clients)
        ]
        failed = await probed(engine, for_s=SATURATED_S)
        assert (await engine.metrics())["num_requests_running"] > 1
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        return failed


async def pause(folder: Path) -> int:
    """False alarms of an engine that did not run for a minute, with streams open."""
    async with engine_process(folder, step_ms=20) as engine:
        await engine.ready()
        begun = asyncio.Event()
        asked = asyncio.create_task(ask(engine, stream=True, max_tokens=1000, begun=begun))
        await begun.wait()
        engine.child.send_signal(signal.SIGSTOP)
        await asyncio.sleep(PAUSED_S)
        engine.child.send_signal(signal.SIGCONT)
        failed = await probed(engine, for_s=10)
        assert (await asked).last == "[DONE]"
        return failed


async def hang(folder: Path) -> float:
    """Seconds from a step without end to the kubelet's verdict."""
    async with engine_process(folder, fault="hang") as engine:
        await engine.ready()
        begun = asyncio.Event()
        asked = asyncio.create_task(ask(engine, stream=True, max_tokens=7000, begun=begun))
        await begun.wait()
        engine.trigger.touch()
        since = time.monotonic()
        failed = 0
        async with asyncio.timeout(120):
            while failed < FAILURES:
                await asyncio.sleep(PERIOD_S)
                ok = await engine.says("/health", timeout_s=PATIENCE_S)
                failed = 0 if ok else failed + 1
        took = time.monotonic() - since
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        return took


async def test_only_a_hang_is_taken_for_one(tmp_path: Path) -> None:
    took, paused, slow, quick = await asyncio.gather(
        hang(tmp_path / "hang"),
        pause(tmp_path / "pause"),
        # Steps of 20 s, each a long prefill; and as many quick ones as the engine can make.
        saturate(tmp_path / "slow", prefill=51, clients=40),
        saturate(tmp_path / "quick", prefill=100_000, clients=150),
    )
    record("hang-detected-seconds", took, "a probe every 5 s, two failures")
    detail = f"two engines saturated for {SATURATED_S:.0f} s, one paused for {PAUSED_S:.0f} s"
    record("hang-false-alarms", paused + slow + quick, detail)
    assert took <= 60
    assert (paused, slow, quick) == (0, 0, 0)
