"""Alive, ready, loaded: three questions that kubelet and gateway ask, answered from plain values.

Alive means forward progress, not idleness: a saturated engine is alive, one whose step never
returns is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Phase = Literal["loading", "running", "load_failed", "failed"]

HUNG_AFTER_S = 45.0
"""Longer than any honest step, and, with the probe's period, under a minute to be noticed."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What the probes decide on. Times in monotonic seconds."""

    phase: Phase
    fault: str
    has_bundle: bool
    draining: bool
    progress_at: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """A yes or no, with the words a person reads in the pod's events."""

    ok: bool
    words: str


def liveness(condition: Condition, now: float) -> Verdict:
    """Whether the process does its work; loading a model is work."""
    if condition.phase == "failed":
        return Verdict(ok=False, words=f"The engine failed: {condition.fault}")
    stuck = now - condition.progress_at
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
