"""A clock for simulated engines: time passes only where a bench lets it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class StepClock:
    """Seconds that pass only in steps, and while nothing is to do."""

    now: float = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
