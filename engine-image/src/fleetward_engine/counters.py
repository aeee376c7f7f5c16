"""The engine's own counters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Totals since start, and the monotonic time at which a step last ended."""

    last_progress: float
    arrivals: int = 0
    steps: int = 0
    preemptions: int = 0
    yields: int = 0
    passes: int = 0
    failed_logits: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
