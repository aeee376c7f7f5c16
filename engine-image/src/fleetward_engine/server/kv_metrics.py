"""Who holds how much KV, and why cached blocks left, as metrics.

Read from the engine's last published stats at scrape time. Tenant labels are bounded: those beyond
the first hundred share a few values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fleetward_api.tenant_label import TenantLabel
from fleetward_engine.outputs import EngineStats


class KvCollector(Collector):
    """KV by tenant, its limits, and departures from the cache by reason; nothing while loading."""

    def __init__(self, stats: Callable[[], EngineStats | None], *, prefix: str) -> None:
        self._stats = stats
        self._prefix = prefix
        self._tenant = TenantLabel()

    def collect(self) -> Iterable[Metric]:
        """Read the stats once and describe them."""
        stats = self._stats()
        if stats is None:
            return
        yield self._gauge(
            "kv_share_max_blocks",
            "Most KV blocks that one tenant may hold.",
            stats.kv_blocks_max_share,
        )
        yield self._gauge(
            "kv_share_guaranteed_blocks",
            "KV blocks that others cannot take from a tenant.",
            stats.kv_blocks_guaranteed,
        )
        yield self._public_blocks(stats)
        yield self._tenant_blocks(stats)
        yield self._tenant_hits(stats)
        yield self._evictions(stats)
        counts = stats.scope_counts.values()
        for name, text, value in (
            ("kv_blocks_expired", "Cached KV blocks past a TTL.", sum(c.expired for c in counts)),
            ("kv_blocks_purged", "Cached KV blocks purged.", sum(c.removed for c in counts)),
        ):
            yield CounterMetricFamily(self._prefix + name, text, value=value)

    def _gauge(self, name: str, text: str, value: int) -> GaugeMetricFamily:
        return GaugeMetricFamily(self._prefix + name, text, value=value)

    def _public_blocks(self, stats: EngineStats) -> Metric:
        family = GaugeMetricFamily(
            self._prefix + "kv_public_blocks",
            "KV blocks of public prefixes: set apart, cached, or declared and without room.",
            labels=["state"],
        )
        public = stats.public_blocks
        family.add_metric(["reserved"], public.reserved)
        family.add_metric(["cached"], public.cached)
        family.add_metric(["left_out"], public.left_out)
        return family

    def _tenant_blocks(self, stats: EngineStats) -> Metric:
        held: Counter[tuple[str, str]] = Counter()
        for tenant, share in stats.shares.items():
            label = self._tenant.of(tenant)
            held[label, "in_use"] += share.in_use
            held[label, "cached"] += share.cached
        family = GaugeMetricFamily(
            self._prefix + "kv_tenant_blocks",
            "KV blocks that a tenant holds: in use by its requests, or cached only.",
            labels=["tenant", "state"],
        )
        for labels, blocks in held.items():
            family.add_metric(list(labels), blocks)
        return family

    def _tenant_hits(self, stats: EngineStats) -> Metric:
        hits: Counter[str] = Counter()
        for holding in stats.holdings:
            hits[self._tenant.of(holding.scope.tenant)] += holding.hits
        family = CounterMetricFamily(
            self._prefix + "kv_tenant_hit_blocks",
            "Cached KV blocks that requests of a tenant found.",
            labels=["tenant"],
        )
        for tenant, count in hits.items():
            family.add_metric([tenant], count)
        return family

    def _evictions(self, stats: EngineStats) -> Metric:
        counts = stats.scope_counts.values()
        family = CounterMetricFamily(
            self._prefix + "kv_evictions",
            "Cached KV blocks evicted: for room in the pool or a share, or because they changed.",
            labels=["reason"],
        )
        family.add_metric(["pool"], sum(count.evicted_pool for count in counts))
        family.add_metric(["quota"], sum(count.evicted_quota for count in counts))
        family.add_metric(["corrupt"], sum(count.evicted_corrupt for count in counts))
        return family
