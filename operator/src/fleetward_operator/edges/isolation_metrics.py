"""The metrics of isolation probes, by service. A replica shows them only while it leads.

The label is `namespace/name`: a label `namespace` would be taken for that of the operator's pod.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

_LABELS = ["inferenceservice"]


class IsolationMetrics:
    """Names are API: additions only."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._failures = Counter(
            "fleetward_operator_isolation_probe_failures_total",
            "Probes of an engine that found cache reused across scopes, or left after its purge.",
            _LABELS,
            registry=registry,
        )
        self._broken = Gauge(
            "fleetward_operator_isolation_broken_engines",
            "Engines of which the last telling probe failed.",
            _LABELS,
            registry=registry,
        )
        self._proved_at = Gauge(
            "fleetward_operator_isolation_probe_last_success_timestamp_seconds",
            "When the engine with the oldest proof was last seen to separate scopes; stands still "
            "while one has none.",
            _LABELS,
            registry=registry,
        )

    def failed(self, key: str) -> None:
        """A probe of an engine of this service (`namespace/name`) failed."""
        self._failures.labels(key).inc()

    def show(self, key: str, *, broken: int, proved_at: float | None) -> None:
        """How a service stands: broken engines, and epoch seconds of the oldest of its proofs.

        None where an engine has none: what was told before goes on standing.
        """
        # A series that begins at its first failure would hide that one from `increase`.
        self._failures.labels(key).inc(0)
        self._broken.labels(key).set(broken)
        if proved_at is not None:
            self._proved_at.labels(key).set(proved_at)

    def forget(self, key: str) -> None:
        """The service is gone."""
        for series in (self._failures, self._broken, self._proved_at):
            series.remove(key)

    def clear(self) -> None:
        """Another replica may lead from now on: what stands here grows old."""
        for series in (self._failures, self._broken, self._proved_at):
            series.clear()
