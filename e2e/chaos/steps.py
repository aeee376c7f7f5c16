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
    Step(
        name="isolation",
        tests=("e2e/tests/test_story.py",),
        figures=("pairs-at-once-cross-hits",),
        limit_s=2400,
    ),
    Step(
        name="purge-on-real-pods",
        tests=("e2e/tests/test_purge_events.py",),
        figures=("purge-events-violations",),
        limit_s=3600,
    ),
    Step(
        name="storm",
        tests=("e2e/tests/test_storm.py",),
        figures=("storm-seconds", "storm-lost-requests", "storm-orphans-duplicates"),
        limit_s=3600,
    ),
    Step(
        name="upgrade",
        tests=("e2e/tests/test_upgrade.py", "e2e/tests/test_existing.py"),
        figures=(
            "upgrade-lost-requests",
            "upgrade-engine-restarts",
            "helm-test-passed",
            "existing-cluster-story",
        ),
        limit_s=3600,
    ),
)
