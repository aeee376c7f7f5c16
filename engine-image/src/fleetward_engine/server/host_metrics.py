"""The host tier as metrics: who holds how much of it, and what came, went and was refused.

Read from the engine's last published stats at scrape time, as `KvCollector`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fleetward_api.tenant_label import TenantLabel
from fleetward_engine.outputs import EngineStats, HostStats


class HostTierCollector(Collector):
    """Nothing while loading; zeros where an engine has no host tier."""

    def __init__(self, stats: Callable[[], EngineStats | None], *, prefix: str) -> None:
        self._stats = stats
        self._prefix = prefix
        self._tenant = TenantLabel()

    def collect(self) -> Iterable[Metric]:
        """Read the stats once and describe them."""
        stats = self._stats()
        if stats is None:
            return
        host, counters = stats.host, stats.host.counters
        gauges = (
            ("kv_host_blocks", "KV blocks that host memory may hold now.", host.slots),
            ("kv_host_cached_blocks", "KV blocks in host memory.", host.blocks),
            ("kv_host_block_bytes", "Bytes that one takes there.", host.slot_bytes),
        )
        books = host.scope_counts.values()
        totals = (
            ("kv_offloaded_blocks", "KV blocks stored in host memory.", counters.offloads),
            ("kv_loaded_blocks", "KV blocks loaded from host memory.", counters.loads),
            ("kv_load_seconds", "Time that loads took.", counters.load_seconds),
            (
                "kv_load_refusals",
                "KV blocks in host memory that were faster computed than loaded.",
                counters.refused_loads,
            ),
            (
                "kv_host_integrity_failures",
                "KV blocks in host memory that were not what had been stored; never used.",
                counters.damaged,
            ),
            (
                "kv_host_blocks_expired",
                "KV blocks in host memory past a TTL.",
                sum(book.expired for book in books),
            ),
            (
                "kv_host_blocks_purged",
                "KV blocks in host memory purged.",
                sum(book.removed for book in books),
            ),
        )
        for name, text, value in gauges:
            yield GaugeMetricFamily(self._prefix + name, text, value=value)
        for name, text, total in totals:
            yield CounterMetricFamily(self._prefix + name, text, value=total)
        yield self._tenant_blocks(host)
        yield self._evictions(host)

    def _tenant_blocks(self, host: HostStats) -> Metric:
        held: Counter[str] = Counter()
        for tenant, share in host.shares.items():
            held[self._tenant.of(tenant)] += share.cached
        family = GaugeMetricFamily(
            self._prefix + "kv_host_tenant_blocks",
            "KV blocks of a tenant in host memory.",
            labels=["tenant"],
        )
        for tenant, blocks in held.items():
            family.add_metric([tenant], blocks)
        return family

    def _evictions(self, host: HostStats) -> Metric:
        books = host.scope_counts.values()
        family = CounterMetricFamily(
            self._prefix + "kv_host_evictions",
            "KV blocks evicted from host memory, which was full, or their tenant's share of it.",
            labels=["reason"],
        )
        family.add_metric(["pool"], sum(book.evicted_pool for book in books))
        family.add_metric(["quota"], sum(book.evicted_quota for book in books))
        return family
