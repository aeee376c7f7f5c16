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


SWEEP = "test_interrupted_at_any_call_it_ends_as_if_undisturbed"

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
    *(
        Step(
            name=f"failpoints-{story}",
            tests=(f"tests/integration/operator/test_failpoints.py::{SWEEP}[{story}]",),
            figures=(f"failpoints-{story}-not-converged", f"failpoints-{story}-writes"),
            limit_s=3600,
        )
        for story in ("create", "delete", "update", "policy", "purge")
    ),
    Step(
        name="kills",
        tests=("tests/integration/operator/test_random_kills.py",),
        figures=(
            "kills-converged-seconds",
            "kills-orphans",
            "kills-duplicates",
            "kills-generations-moved",
        ),
        limit_s=1200,
    ),
)
