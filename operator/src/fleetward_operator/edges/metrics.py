"""The operator's own metrics."""

from __future__ import annotations

from collections.abc import Collection

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fleetward_operator.edges.isolation_metrics import IsolationMetrics


class Metrics:
    """All series, in a registry of their own. Names are API: additions only."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconciles = Counter(
            "fleetward_operator_reconciles_total",
            "Passes of a worker, by kind and how they ended.",
            ["kind", "result"],
            registry=self.registry,
        )
        self.duration = Histogram(
            "fleetward_operator_reconcile_duration_seconds",
            "Seconds from taking a key to having dealt with it.",
            ["kind"],
            buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
            registry=self.registry,
        )
        self.queue_depth = Gauge(
            "fleetward_operator_queue_depth",
            "Keys that wait for a worker, by kind.",
            ["kind"],
            registry=self.registry,
        )
        self.leader = Gauge(
            "fleetward_operator_leader",
            "1 while this replica holds the lease.",
            registry=self.registry,
        )
        self.writes = Counter(
            "fleetward_operator_writes_total",
            "Writes sent to the API server, by kind and verb (the lease's own excepted).",
            ["kind", "verb"],
            registry=self.registry,
        )
        self.member_calls = Counter(
            "fleetward_operator_member_calls_total",
            "Calls to engines and gateways, by call and how they ended.",
            ["call", "result"],
            registry=self.registry,
        )
        self.isolation = IsolationMetrics(self.registry)
        self.watch_silence = Gauge(
            "fleetward_operator_watch_silence_seconds",
            "Seconds since the API server was last heard on the quietest watch.",
            registry=self.registry,
        )

    def heard(self, silences: Collection[float]) -> None:
        """Show the longest of the watches' silences, in seconds."""
        self.watch_silence.set(max(silences, default=0.0))
