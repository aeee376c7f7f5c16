"""Alive, ready, loaded: three questions that kubelet and gateway ask, answered from plain values.

Alive means forward progress, not idleness: a saturated engine is alive, one whose step never
returns is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Phase = Literal["loading", "running", "load_failed", "failed"]

HUNG_AFTER_S = 45.0
"""Longer than any honest step, and, with the probe's period, under a minute to be noticed."""
BEAT_S = 1.0
PAUSED_AFTER_S = 10.0


class Heartbeat:
    """Tells a process that was paused from an engine that hangs. To be beaten every second.

    ``resumed_at``: when the process last ran again after it had not run for a while (monotonic
    seconds; at first, when it began). What was not done before that was nobody's fault.
    """

    def __init__(self, now: float) -> None:
        self._last = now
        self.resumed_at = now

    def beat(self, now: float) -> None:
        """Note that the process runs."""
        if now - self._last > PAUSED_AFTER_S:
            self.resumed_at = now
        self._last = now


@dataclass(frozen=True, slots=True)
class Condition:
    """What the probes decide on. Times in monotonic seconds."""

    phase: Phase
    fault: str
    has_bundle: bool
    draining: bool
    progress_at: float
    resumed_at: float = -math.inf


@dataclass(frozen=True, slots=True)
class Verdict:
    """A yes or no, with the words a person reads in the pod's events."""

    ok: bool
    words: str


def liveness(condition: Condition, now: float) -> Verdict:
    """Whether the process does its work; loading a model is work."""
    if condition.phase == "failed":
        return Verdict(ok=False, words=f"The engine failed: {condition.fault}")
    stuck = now - max(condition.progress_at, condition.resumed_at)
    if condition.phase == "running" and stuck > HUNG_AFTER_S:
        return Verdict(ok=False, words=f"No step has ended for {stuck:.0f} s.")
    return Verdict(ok=True, words="The engine makes progress.")


def readiness(condition: Condition) -> Verdict:
    """Whether new requests may be sent here."""
    if condition.phase == "load_failed":
        return Verdict(ok=False, words=f"The model could not be loaded: {condition.fault}")
    if condition.phase == "failed":
        return Verdict(ok=False, words=f"The engine failed: {condition.fault}")
    if condition.phase == "loading":
        return Verdict(ok=False, words="The model is being loaded.")
    if not condition.has_bundle:
        return Verdict(ok=False, words="No policy bundle is in force yet.")
    if condition.draining:
        return Verdict(ok=False, words="The engine is draining.")
    return Verdict(ok=True, words="Ready.")
