"""The engine's Prometheus metrics. Names and labels are API: they are only ever added to.

Names follow what vLLM's users already graph, under our prefix.
Gauges and the engine's own counters are read from its last published stats at scrape time, so a
scrape never waits for a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fleetward_api.admin import MemoryState
from fleetward_engine.outputs import AdmissionReason, EngineStats, RequestOutput
from fleetward_engine.server.host_metrics import HostTierCollector
from fleetward_engine.server.kv_metrics import KvCollector
from fleetward_engine.server.latency_metrics import LatencyMetrics, Timeline
from fleetward_engine.server.leaks import KINDS

PREFIX = "fleetward_engine_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


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
        memory: Callable[[], MemoryState | None] = lambda: None,
    ) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_StatsCollector(stats))
        self.registry.register(KvCollector(stats, prefix=PREFIX))
        self.registry.register(HostTierCollector(stats, prefix=PREFIX))
        self.registry.register(_HeldCollector(held))
        self.registry.register(_MemoryCollector(memory))
        self._latency = LatencyMetrics(self.registry, prefix=PREFIX)
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
        for reason in ("stop", "length", "abort", "error", "deadline"):
            self._success.labels(reason)
        for kind in KINDS:
            self._leaked.labels(kind)

    def observe(self, timeline: Timeline, output: RequestOutput, at: float) -> None:
        """Account for one output of a request, at the time its step ended."""
        self._latency.observe(timeline, output, at)
        if output.finish_reason is not None:
            self._success.labels(output.finish_reason).inc()

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
        refusals = CounterMetricFamily(
            f"{PREFIX}admission_refusals",
            "Requests that were not taken in, by reason.",
            labels=["reason"],
        )
        for reason in get_args(AdmissionReason):
            refusals.add_metric([reason], stats.admission_refusals.get(reason, 0))
        yield refusals
        seconds = CounterMetricFamily(
            f"{PREFIX}step_seconds",
            "Time in steps: choosing their work, the model's part, handing out what they brought.",
            labels=["phase"],
        )
        for phase, spent in stats.step_seconds.items():
            seconds.add_metric([phase], spent)
        yield seconds


class _MemoryCollector(Collector):
    """What the memory is for, as decided at start; nothing where no model computes."""

    def __init__(self, memory: Callable[[], MemoryState | None]) -> None:
        self._memory = memory

    def collect(self) -> Iterable[Metric]:
        """Describe the budget."""
        memory = self._memory()
        if memory is None:
            return
        yield GaugeMetricFamily(
            f"{PREFIX}memory_available_bytes",
            "Memory of the device or the container.",
            value=memory.available_bytes,
        )
        budget = GaugeMetricFamily(
            f"{PREFIX}memory_budget_bytes", "What the memory is for, by part.", labels=["part"]
        )
        for part, size in memory.parts:
            budget.add_metric([part], size)
        yield budget


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
