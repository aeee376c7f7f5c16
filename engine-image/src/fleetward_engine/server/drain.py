"""Leaving without breaking a stream: readiness off, then no new requests, then wait."""

from __future__ import annotations

from dataclasses import dataclass

LAME_DUCK_S = 3.0
"""How long new requests are still served after readiness went off: news of it travels."""


@dataclass(slots=True)
class Drain:
    """Whether the engine is leaving, since when (monotonic seconds)."""

    started_at: float | None = None

    @property
    def draining(self) -> bool:
        """Readiness is off."""
        return self.started_at is not None

    def start(self, now: float) -> None:
        """Begin; a second call changes nothing."""
        if self.started_at is None:
            self.started_at = now

    def elapsed(self, now: float) -> float:
        """Seconds since it began; 0 before."""
        return 0.0 if self.started_at is None else now - self.started_at

    def refuses(self, now: float) -> bool:
        """New requests are turned away."""
        return self.elapsed(now) >= LAME_DUCK_S

    def done(self, now: float, *, unfinished: int) -> bool:
        """Nothing runs any more and nothing new can come."""
        return self.refuses(now) and unfinished == 0
