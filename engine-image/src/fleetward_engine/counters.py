"""The engine's own counters."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetward_engine.outputs import StepPhase


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
    step_seconds: dict[StepPhase, float] = field(
        default_factory=lambda: {"schedule": 0.0, "run": 0.0, "update": 0.0}
    )

    def end_step(self, began: float, ready: float, done: float, ended: float) -> None:
        """Count a step that ran; the four moments bound its phases, monotonic seconds."""
        self.steps += 1
        self.step_seconds["schedule"] += ready - began
        self.step_seconds["run"] += done - ready
        self.step_seconds["update"] += ended - done
