"""Steps with their times, told as they end; long ones say every 15 s that they are alive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

PROGRESS_EVERY_SECONDS = 15.0


def print_line(line: str) -> None:
    """Print at once, so that a pipe or a log shows progress too."""
    print(line, flush=True)


@dataclass(frozen=True, slots=True)
class Steps:
    """Tells what is done. Safe to use from several threads at once."""

    tell: Callable[[str], None] = print_line
    clock: Callable[[], float] = time.monotonic
    quiet_below_seconds: float = 0.0
    started: float = field(default_factory=time.monotonic)

    @contextmanager
    def step(self, name: str, progress: Callable[[], str] | None = None) -> Iterator[None]:
        """Time the block; ``progress`` gives a few words for the 15-second lines."""
        begin = self.clock()
        done = threading.Event()
        ticker = threading.Thread(
            target=self._tick, args=(name, begin, done, progress), daemon=True
        )
        ticker.start()
        try:
            yield
        finally:
            done.set()
            ticker.join()
        took = self.clock() - begin
        if took >= self.quiet_below_seconds:
            self.tell(f"  {took:6.1f} s  {name}")

    def total(self, sentence: str) -> None:
        """Close with the time since these steps were made."""
        self.tell(f"{sentence} ({self.clock() - self.started:.1f} s)")

    def _tick(
        self,
        name: str,
        begin: float,
        done: threading.Event,
        progress: Callable[[], str] | None,
    ) -> None:
        while not done.wait(PROGRESS_EVERY_SECONDS):
            words = f": {progress()}" if progress else ""
            self.tell(f"     ...    {name}, {self.clock() - begin:.0f} s so far{words}")
