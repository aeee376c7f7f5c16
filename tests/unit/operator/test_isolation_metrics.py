"""The series of isolation probes: from zero, and gone with their service or the lease."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from fleetward_operator.edges.isolation_metrics import IsolationMetrics

FAILURES = "fleetward_operator_isolation_probe_failures_total"
BROKEN = "fleetward_operator_isolation_broken_engines"
PROVED = "fleetward_operator_isolation_probe_last_success_timestamp_seconds"


def value(registry: CollectorRegistry, name: str, key: str = "apps/demo") -> float | None:
    return registry.get_sample_value(name, {"inferenceservice": key})


def test_a_failure_counts_from_zero() -> None:
    registry = CollectorRegistry()
    metrics = IsolationMetrics(registry)
    metrics.show("apps/demo", broken=0, proved_at=None)
    assert (value(registry, FAILURES), value(registry, BROKEN)) == (0, 0)
    assert value(registry, PROVED) is None
    metrics.failed("apps/demo")
    metrics.show("apps/demo", broken=1, proved_at=1234.0)
    assert (value(registry, FAILURES), value(registry, BROKEN)) == (1, 1)
    assert value(registry, PROVED) == 1234.0


def test_what_is_gone_or_grows_old_is_not_shown() -> None:
    registry = CollectorRegistry()
    metrics = IsolationMetrics(registry)
    for key in ("apps/demo", "apps/other"):
        metrics.show(key, broken=1, proved_at=1.0)
    metrics.forget("apps/demo")
    metrics.forget("apps/never")
    assert value(registry, BROKEN) is None
    assert value(registry, BROKEN, "apps/other") == 1
    metrics.clear()
    assert b"apps/" not in generate_latest(registry)
