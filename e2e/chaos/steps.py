"""What `make chaos` runs, in order: each step is a command that records figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One command of `make chaos`.

    `name` is what `--only` takes, `tests` the pytest targets that record `figures`, and
    `limit_s` bounds the whole step in seconds.
    """

    name: str
    tests: tuple[str, ...]
    figures: tuple[str, ...]
    limit_s: int


STEPS: tuple[Step, ...] = (
    Step(
        name="evidence-mutations",
        tests=("tests/unit/api/test_evidence_mutations.py",),
        figures=("evidence-mutations-missed",),
        limit_s=900,
    ),
)
