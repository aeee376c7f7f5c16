"""`python -m tests.support.sabotage FAULT TRIGGER serve …`: the engine, with a fault in its steps.

The fault begins with the first step after the file TRIGGER exists.
"""

from __future__ import annotations

import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from fleetward_api.admin import ModelState
from fleetward_engine import __main__ as program
from fleetward_engine.engine import Engine
from fleetward_engine.model_runner import StepInput
from fleetward_engine.server import cache_context, serve_command

SPARE_BYTES = 32 << 20


class Panic(BaseException):
    """What a library written in another language raises when it gives up."""


def no_memory() -> NoReturn:
    """An allocation of a step that fails, and nothing else is wrong."""
    raise MemoryError


def no_device() -> NoReturn:
    """What torch raises when an accelerator is gone."""
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def panic() -> NoReturn:
    """Past `Exception`."""
    raise Panic("index out of bounds")


def greedy() -> None:
    """The process may map no more memory, and the step takes all there is."""
    _limit()
    taken: list[bytearray] = []
    _take_all(taken)


KEPT: list[bytearray] = []


def starved() -> None:
    """As `greedy`, and the memory does not come back when the step has failed."""
    _limit()
    _take_all(KEPT)


def hang() -> None:
    """A step that never ends."""
    threading.Event().wait()


FAULTS: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (no_memory, no_device, panic, greedy, starved, hang)
}
"""And `stuck`: a step that fails while a thread of the tokenizer's is in a call without end;
`quoting`: a step with a prompt in it, which fails with that prompt as its words; and `sharing`:
every request has the same cache root, whoever asks."""


def quote_prompt(engine: Engine, step_input: StepInput) -> None:
    """What a library does that is given text and repeats it in its fault."""
    text = b"".join(map(engine.tokenizer.token_bytes, step_input.token_ids))
    if len(text) > len(step_input.block_tables):
        raise KeyError(text)


def _limit() -> None:
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + SPARE_BYTES, mapped + SPARE_BYTES))


def _take_all(into: list[bytearray]) -> None:
    size = 1 << 22
    while True:
        try:
            into.append(bytearray(size))
        except MemoryError:
            if size == 1 << 14:
                raise
            size >>= 1


def share_everything(trigger: Path) -> None:
    """Give everybody one cache root, once the trigger is there."""
    contexts: Any = cache_context
    derive = contexts.cache_root

    def root(*facts: Any) -> bytes:
        found: bytes = bytes(32) if trigger.exists() else derive(*facts)
        return found

    contexts.cache_root = root


def main(fault: str, trigger: Path, arguments: list[str]) -> int:
    """Run the engine's own command line."""
    if fault == "sharing":
        share_everything(trigger)
        return program.main(arguments)
    serving: Any = serve_command
    build = serving.build_engine

    def sabotaged(*given: Any) -> tuple[Engine, ModelState]:
        engine, state = build(*given)
        run = engine._runner.run

        def step(step_input: Any) -> Any:
            if trigger.exists() and fault == "quoting":
                quote_prompt(engine, step_input)
            elif trigger.exists():
                FAULTS.get(fault, no_memory)()
            return run(step_input)

        runner: Any = engine._runner
        runner.run = step
        if fault == "stuck":
            tokenizer: Any = engine.tokenizer
            encode = tokenizer.encode
            tokenizer.encode = lambda text: hang() if len(text) > 5000 else encode(text)
        return engine, state

    serving.build_engine = sabotaged
    return program.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
