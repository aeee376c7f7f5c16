"""A real engine that dies of a fault which quotes a prompt: log and last words do not repeat it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from fleetward_engine.server.process import EXIT_FAILED
from tests.support.canaries import CANARY
from tests.support.engine_process import Ending, EngineProcess, ask, engine_process


async def served_to_another(engine: EngineProcess) -> Ending:
    """One who runs beside the prompt that is quoted."""
    begun = asyncio.Event()
    asking = asyncio.create_task(ask(engine, stream=True, begun=begun))
    await begun.wait()
    engine.trigger.touch()
    await ask(engine, stream=False, prompt=CANARY * 3)
    return await asking


async def test_last_words_and_log_repeat_no_prompt(tmp_path: Path) -> None:
    async with engine_process(tmp_path, fault="quoting") as engine:
        await engine.ready()
        async with asyncio.timeout(60):
            other = await served_to_another(engine)
            assert await engine.child.wait() == EXIT_FAILED
    # The kubelet copies the last words into the pod's status, or else the end of the log.
    words, log = engine.termination.read_text(), (tmp_path / "log").read_text()
    assert words.startswith("KeyError at ")
    assert "KeyError" in log
    for told in (words, log, str(other)):
        assert CANARY not in told
    assert isinstance(other.last, dict)
    assert other.last["error"]["code"] == "engine_failed"
