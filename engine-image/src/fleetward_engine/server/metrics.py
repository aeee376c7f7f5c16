"""The engine's Prometheus metrics. Names and labels are API: they are only ever added to.

Names follow what vLLM's users already graph, under our prefix; inter-token buckets start at 1 ms.
Gauges and the engine's own counters are read from its last published stats at scrape time, so a
scrape never waits for a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, Summary, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fleetward_api.tenant_label import TenantLabel
from fleetward_engine.outputs import EngineStats, RequestOutput
from fleetward_engine.server.kv_metrics import KvCollector
from fleetward_engine.server.leaks import KINDS

PREFIX = "fleetward_engine_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_TTFT_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
)  # fmt: skip
_ITL_BUCKETS = (
    0.001, 0.002, 0.003, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.05,
    0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0,
)  # fmt: skip
_REQUEST_BUCKETS = (
    0.005, 0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0,
    20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
)  # fmt: skip


@dataclass(slots=True)
class Timeline:
    """When things happened to one request of a tenant, monotonic seconds."""

    arrival: float
    tenant: str = ""
    last_token_at: float | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """What the server holds for clients at one moment; back at its baseline when they are gone."""

    unfinished: int
    responses: int
    connections: int
    tasks: int


_NOTHING = Held(unfinished=0, responses=0, connections=0, tasks=0)


class EngineMetrics:
    """Everything on ``/metrics``; one registry per process, none global."""

    def __init__(
        self,
        stats: Callable[[], EngineStats | None],
        held: Callable[[], Held] = lambda: _NOTHING,
    ) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_StatsCollector(stats))
        self.registry.register(KvCollector(stats, prefix=PREFIX))
        self.registry.register(_HeldCollector(held))
        self._ttft = self._histogram(
            "time_to_first_token_seconds", "From arrival to the first token.", _TTFT_BUCKETS
        )
        self._itl = self._histogram(
            "inter_token_latency_seconds", "Between two tokens of a request.", _ITL_BUCKETS
        )
        self._e2e = self._histogram(
            "e2e_request_latency_seconds", "From arrival to the last token.", _REQUEST_BUCKETS
        )
        self._queue = self._histogram(
            "request_queue_time_seconds", "Waited in all, also after preemptions.", _REQUEST_BUCKETS
        )
        self._success = Counter(
            f"{PREFIX}request_success",
            "Requests that ended, by reason.",
            ["finish_reason"],
            registry=self.registry,
        )
        self._refused = Counter(
            f"{PREFIX}request_refused",
            "Requests answered with an error before they ran, by error code.",
            ["reason"],
            registry=self.registry,
        )
        self._leaked = Counter(
            f"{PREFIX}leaks",
            "Found held while nothing ran, by kind; anything but 0 is a defect.",
            ["kind"],
            registry=self.registry,
        )
        self._tenant_queue = Summary(
            f"{PREFIX}tenant_queue_time_seconds",
            "Waited in all, also after preemptions, by tenant.",
            ["tenant"],
            registry=self.registry,
        )
        self._tenant_label = TenantLabel()
        for reason in ("stop", "length", "abort", "error", "deadline"):
            self._success.labels(reason)
        for kind in KINDS:
            self._leaked.labels(kind)

    def observe(self, timeline: Timeline, output: RequestOutput, at: float) -> None:
        """Account for one output of a request, at the time its step ended."""
        tokens = len(output.new_token_ids)
        if tokens:
            if timeline.last_token_at is None:
                self._ttft.observe(at - timeline.arrival)
            else:
                # A step may bring several tokens: each waited its share of the gap.
                gap = (at - timeline.last_token_at) / tokens
                for _ in range(tokens):
                    self._itl.observe(gap)
            timeline.last_token_at = at
        if output.finish_reason is not None:
            self._success.labels(output.finish_reason).inc()
            self._e2e.observe(at - timeline.arrival)
            self._queue.observe(output.queue_seconds)
            tenant = self._tenant_label.of(timeline.tenant)
            self._tenant_queue.labels(tenant).observe(output.queue_seconds)

    def aborted(self) -> None:
        """A request ended because its client left, or because we stop."""
        self._success.labels("abort").inc()

    def refused(self, reason: str) -> None:
        """A request was turned away; ``reason`` is one of our own error codes."""
        self._refused.labels(reason).inc()

    def leaked(self, kind: str, count: int) -> None:
        """The self-check at idle found this much held for nobody."""
        self._leaked.labels(kind).inc(count)

    def render(self) -> bytes:
        """The exposition text."""
        return generate_latest(self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"{PREFIX}{name}", text, registry=self.registry, buckets=buckets)


class _StatsCollector(Collector):
    """The engine's published stats as gauges and counters; nothing while the model loads."""

    def __init__(self, stats: Callable[[], EngineStats | None]) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        """Read the stats once and describe them."""
        stats = self._stats()
        if stats is None:
            return
        used = stats.kv_blocks_used / max(stats.kv_blocks_total, 1)
        gauges = (
            ("num_requests", "Requests whose end was not handed out yet.", stats.requests),
            ("num_requests_running", "Requests that hold KV blocks.", stats.running),
            ("num_requests_waiting", "Requests in the queue.", stats.waiting),
            ("kv_cache_usage_perc", "Share of KV blocks in use by requests, 0 to 1.", used),
            ("kv_block_references", "Uses of KV blocks by requests.", stats.kv_block_references),
            ("kv_cache_blocks", "KV blocks in the pool.", stats.kv_blocks_total),
            ("prefix_cache_blocks", "KV blocks that a lookup can find.", stats.cached_blocks),
        )
        counters = (
            ("prefix_cache_queries", "Prompt tokens looked up.", stats.prefix_query_tokens),
            ("prefix_cache_hits", "Prompt tokens found.", stats.prefix_hit_tokens),
            ("prompt_tokens", "Prompt tokens of admitted requests.", stats.prompt_tokens),
            ("generation_tokens", "Tokens generated.", stats.generation_tokens),
            ("num_preemptions", "Requests that lost their blocks.", stats.preemptions),
            ("fairness_preemptions", "Of them: for a tenant behind its share.", stats.yields),
            ("queue_passes", "Admitted past one that did not fit.", stats.passes),
            ("nonfinite_logits", "Requests failed for NaN logits.", stats.failed_logits),
            ("kv_corruptions", "Cached blocks found changed, not used.", stats.kv_corruptions),
            ("steps", "Engine steps.", stats.steps),
        )
        for name, text, value in gauges:
            yield GaugeMetricFamily(PREFIX + name, text, value=value)
        for name, text, value in counters:
            yield CounterMetricFamily(PREFIX + name, text, value=value)


class _HeldCollector(Collector):
    """What the server holds for clients, as gauges."""

    def __init__(self, held: Callable[[], Held]) -> None:
        self._held = held

    def collect(self) -> Iterable[Metric]:
        """Read it once and describe it."""
        held = self._held()
        gauges = (
            ("num_requests_unfinished", "Requests whose answer is awaited.", held.unfinished),
            ("num_open_responses", "Answers being sent.", held.responses),
            ("num_connections", "Connections to the public port.", held.connections),
            ("num_tasks", "Tasks of the event loop.", held.tasks),
        )
        for name, text, value in gauges:
            yield GaugeMetricFamily(PREFIX + name, text, value=value)
