"""What `make chaos` runs, in order: each step is a command that records figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One command of `make chaos`.

    `name` is what `--only` takes, `tests` the pytest targets that record `figures`, and
    `limit_s` bounds the whole step in seconds. A step that is `untimed` measures no time and takes
    no cluster: such steps may run side by side.
    """

    name: str
    tests: tuple[str, ...]
    figures: tuple[str, ...]
    limit_s: int
    untimed: bool = False


ANSWERS = "tests/integration/operator/test_api_server_trouble_answers.py"
SWEEP = "test_interrupted_at_any_call_it_ends_as_if_undisturbed"

STEPS: tuple[Step, ...] = (
    Step(
        name="evidence-mutations",
        tests=("tests/unit/api/test_evidence_mutations.py",),
        figures=("evidence-mutations-missed",),
        limit_s=900,
        untimed=True,
    ),
    Step(
        name="purge-protocol",
        tests=("tests/fire/purge/test_purge_states.py",),
        figures=("purge-violations", "purge-states-explored", "purge-mutants-missed"),
        limit_s=1800,
        untimed=True,
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
            untimed=True,
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
    Step(
        name="ownership",
        tests=("tests/integration/operator/test_ownership.py",),
        figures=(
            "foreign-field-reverts",
            "foreign-field-loops",
            "owned-field-reverted",
            "owned-field-authors",
            "contested-field-writes",
            "contested-field-events",
            "contested-field-healed",
        ),
        limit_s=1200,
    ),
    Step(
        name="deletion",
        tests=(
            "tests/integration/operator/test_deletion.py",
            "tests/integration/operator/test_deletion_of_tenants.py",
        ),
        figures=(
            "namespace-gone-operator-up",
            "namespace-gone-operator-down",
            "namespace-gone-operator-uninstalled",
            "service-deletion-orphans",
            "tenant-deletion",
            "tenant-deletion-unproved",
        ),
        limit_s=1800,
    ),
    Step(
        name="gateway-hostile",
        tests=(
            "tests/fire/gateway/test_lost.py",
            "tests/fire/gateway/test_smuggling.py",
            "tests/fire/gateway/test_bombs.py",
            "tests/fire/gateway/test_spoofing.py",
            "tests/fire/gateway/test_mutations.py",
            "tests/fire/gateway/test_crowds.py",
        ),
        figures=(
            "gateway-lost-requests",
            "smuggled-requests",
            "bombs-memory-mib",
            "bombs-read-beyond-limit-kib",
            "spoofs-effective",
            "streams-2000-completed",
            "slow-reader-memory-mib",
            "slow-reader-p99-ratio",
        ),
        limit_s=1800,
    ),
    Step(
        name="engine-under-fire",
        tests=("tests/fire/engine", "tests/fire/engine_server/test_half_done.py"),
        figures=(
            "engine-stream-end-seconds",
            "engine-unready-seconds",
            "engine-exit-seconds",
            "hang-detected-seconds",
            "hang-false-alarms",
            "drop-clients-left",
            "drop-freed-seconds",
            "admin-half-applied",
        ),
        limit_s=2400,
    ),
    Step(
        name="surface-fuzz",
        tests=("tests/fire/engine_server/test_surface_fuzz.py",),
        figures=("surface-fuzz-faults",),
        limit_s=3600,
        untimed=True,
    ),
    Step(
        name="leadership",
        tests=("tests/integration/operator/test_leadership.py",),
        figures=(
            "leader-changes",
            "leader-late-requests",
            "leader-stale-writes",
            "leader-takeover-seconds",
            "leader-woken-writes",
        ),
        limit_s=2400,
    ),
    Step(
        name="api-server-trouble",
        tests=("tests/integration/operator/test_api_server_trouble.py",),
        figures=(
            *("refused-lost-requests", "refused-life-faults", "refused-unready-seconds"),
            *("refused-reconnect-seconds", "refused-caught-up-seconds", "relist-status-writes"),
            *("silent-watch-detected-seconds", "silent-unready-seconds"),
            *("silent-caught-up-seconds", "silent-lost-requests"),
            *("expired-watch-differences", "expired-watch-life-faults"),
        ),
        limit_s=1500,
    ),
    Step(
        name="api-server-throttles",
        tests=(f"{ANSWERS}::test_throttled",),
        figures=("throttled-early-calls", "throttled-life-faults", "throttled-times-normal"),
        limit_s=1500,
    ),
    Step(
        name="api-server-fails",
        tests=(f"{ANSWERS}::test_failing",),
        figures=("failing-lost-services", "failing-converged-seconds"),
        limit_s=900,
    ),
    Step(
        name="foreign-writer",
        tests=(f"{ANSWERS}::test_foreign_writer",),
        figures=("foreign-lost-updates", "foreign-write-amplification"),
        limit_s=900,
    ),
    Step(
        name="idle-fleet",
        tests=(f"{ANSWERS}::test_an_idle_fleet",),
        figures=("idle-fleet-writes",),
        limit_s=3600,
        untimed=True,
    ),
    Step(
        name="config-mutations",
        tests=("tests/integration/gateway/test_broken_objects.py",),
        figures=("config-mutations-downtime",),
        limit_s=900,
        untimed=True,
    ),
    Step(
        name="key-rotation",
        tests=("tests/integration/gateway/test_rotation.py",),
        figures=("rotation-seconds", "rotation-dropped-streams"),
        limit_s=900,
    ),
)
