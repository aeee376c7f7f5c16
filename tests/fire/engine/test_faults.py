"""An engine whose step fails ends every answer in-band, leaves rotation, and exits."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from e2e.chaos.scale import is_full
from e2e.figures.record import record
from fleetward_engine.server.process import EXIT_FAILED
from tests.support.engine_process import Ending, EngineProcess, ask, engine_process

FAULTS = ("no_memory", "no_device", "panic", "greedy", "starved", "stuck")
SHORT = ("panic", "greedy", "stuck")
STREAMS = 12


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds from the fault to the last answer's end, to readiness off, to the exit."""

    answers: float
    unready: float
    exit: float

    def worst(self, other: Times) -> Times:
        return Times(
            max(self.answers, other.answers),
            max(self.unready, other.unready),
            max(self.exit, other.exit),
        )


def told_in_band(ending: Ending) -> bool:
    """An OpenAI-shaped error, as the last event of a stream or as the answer."""
    if not isinstance(ending.last, dict):
        return False
    error = ending.last.get("error")
    keys = {"message", "type", "param", "code"}
    return isinstance(error, dict) and set(error) == keys and error["code"] == "engine_failed"


async def unready_at(engine: EngineProcess) -> float:
    while await engine.says("/ready"):  # noqa: ASYNC110 - asked as a probe does
        await asyncio.sleep(0.02)
    return time.monotonic()


async def fail(folder: Path, fault: str) -> Times:
    """Let the fault happen while streams run, requests wait and one is being tokenised."""
    async with engine_process(folder, fault=fault, max_num_seqs=8) as engine:
        await engine.ready()
        begun = [asyncio.Event() for _ in range(8)]
        asked = [asyncio.create_task(ask(engine, stream=True, begun=each)) for each in begun]
        await asyncio.gather(*(each.wait() for each in begun))
        asked += [asyncio.create_task(ask(engine, stream=bool(n % 2))) for n in range(4)]
        stuck = asyncio.create_task(ask(engine, stream=True, prompt="x" * 5500))
        await asyncio.sleep(0.2)
        engine.trigger.touch()
        since = time.monotonic()
        async with asyncio.timeout(60):
            unready = asyncio.create_task(unready_at(engine))
            endings = await asyncio.gather(*asked)
            code = await engine.child.wait()
            exited = time.monotonic()
        await asyncio.gather(stuck, return_exceptions=True)
        assert code == EXIT_FAILED, (fault, code)
        for ending in endings:
            assert told_in_band(ending), (fault, ending)
        for ending in endings[:8]:
            assert ending.status == 200, (fault, ending)
            assert ending.events > 1, (fault, ending)
        assert engine.termination.read_text(), fault
        last = max(ending.at for ending in endings)
        return Times(last - since, await unready - since, exited - since)


async def test_a_failed_step_is_told_and_ends_the_process(tmp_path: Path) -> None:
    if not is_full():
        await asyncio.gather(*(fail(tmp_path / fault, fault) for fault in SHORT))
        return
    worst = Times(0, 0, 0)
    for run in range(3):
        for fault in FAULTS:
            worst = worst.worst(await fail(tmp_path / f"{fault}-{run}", fault))
    detail = f"worst of 3 runs of {', '.join(FAULTS)}"
    record("engine-stream-end-seconds", worst.answers, detail)
    record("engine-unready-seconds", worst.unready, detail)
    record("engine-exit-seconds", worst.exit, detail)
    assert worst.answers <= 2
    assert worst.unready <= 2
    assert worst.exit <= 10


async def test_a_paused_engine_goes_on_and_a_killed_one_comes_back(tmp_path: Path) -> None:
    async with engine_process(tmp_path) as engine:
        await engine.ready()
        begun = asyncio.Event()
        asked = asyncio.create_task(ask(engine, stream=True, max_tokens=300, begun=begun))
        await begun.wait()
        engine.child.send_signal(signal.SIGSTOP)
        await asyncio.sleep(1)
        engine.child.send_signal(signal.SIGCONT)
        assert await engine.says("/health")
        async with asyncio.timeout(60):
            ending = await asked
        assert (ending.status, ending.last) == (200, "[DONE]")
        assert ending.events > 300
        engine.child.kill()
        await engine.child.wait()
    async with engine_process(tmp_path) as again:
        await again.ready()
        ending = await ask(again, stream=True, max_tokens=3)
        assert ending.last == "[DONE]"
