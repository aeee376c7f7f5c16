"""How long requests waited and ran, as histograms over all of them and as sums by tenant.

Names follow what vLLM's users already graph; inter-token buckets start at 1 ms. Of a tenant, only
sums and counts are kept, so that a hundred of them don't make thousands of series.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Histogram, Summary

from fleetward_api.tenant_label import TenantLabel
from fleetward_engine.outputs import RequestOutput

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
    """When things happened to one request of a tenant, monotonic seconds.

    `queue_s` is how long it had waited when its first token came, `tokens` how many have come.
    """

    arrival: float
    tenant: str = ""
    queue_s: float = 0.0
    first_token_at: float | None = None
    last_token_at: float | None = None
    tokens: int = 0


class LatencyMetrics:
    """TTFT, ITL, TPOT and where a request's time went.

    Args:
        registry: where they are exposed. prefix: of every name.
    """

    def __init__(self, registry: CollectorRegistry, *, prefix: str) -> None:
        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(prefix + name, text, registry=registry, buckets=buckets)

        def by_tenant(name: str, text: str) -> Summary:
            return Summary(f"{prefix}tenant_{name}", text, ["tenant"], registry=registry)

        self._ttft = histogram(
            "time_to_first_token_seconds", "From arrival to the first token.", _TTFT_BUCKETS
        )
        self._itl = histogram(
            "inter_token_latency_seconds", "Between two tokens of a request.", _ITL_BUCKETS
        )
        self._tpot = histogram(
            "request_time_per_output_token_seconds",
            "Of a request: its mean time for a token after the first.",
            _ITL_BUCKETS,
        )
        self._e2e = histogram(
            "e2e_request_latency_seconds", "From arrival to the last token.", _REQUEST_BUCKETS
        )
        self._queue = histogram(
            "request_queue_time_seconds", "Waited in all, also after preemptions.", _REQUEST_BUCKETS
        )
        self._prefill = histogram(
            "request_prefill_time_seconds",
            "From arrival to the first token, without the wait.",
            _REQUEST_BUCKETS,
        )
        self._decode = histogram(
            "request_decode_time_seconds", "From the first token to the last.", _REQUEST_BUCKETS
        )
        self._tenant_ttft = by_tenant(
            "time_to_first_token_seconds", "From arrival to the first token, by tenant."
        )
        self._tenant_itl = by_tenant(
            "inter_token_latency_seconds", "Between two tokens of a request, by tenant."
        )
        self._tenant_tpot = by_tenant(
            "request_time_per_output_token_seconds",
            "Of a request: its mean time for a token after the first, by tenant.",
        )
        self._tenant_queue = by_tenant(
            "queue_time_seconds", "Waited in all, also after preemptions, by tenant."
        )
        self._label = TenantLabel()

    def observe(self, timeline: Timeline, output: RequestOutput, at: float) -> None:
        """Account for one output of a request, at the time its step ended."""
        tenant = self._label.of(timeline.tenant)
        tokens = len(output.new_token_ids)
        if tokens and timeline.last_token_at is None:
            timeline.first_token_at, timeline.queue_s = at, output.queue_seconds
            self._ttft.observe(at - timeline.arrival)
            self._tenant_ttft.labels(tenant).observe(at - timeline.arrival)
            self._prefill.observe(max(0.0, at - timeline.arrival - timeline.queue_s))
        elif tokens and timeline.last_token_at is not None:
            # A step may bring several tokens: each waited its share of the gap.
            gap = (at - timeline.last_token_at) / tokens
            for _ in range(tokens):
                self._itl.observe(gap)
                self._tenant_itl.labels(tenant).observe(gap)
        if tokens:
            timeline.last_token_at = at
            timeline.tokens += tokens
        if output.finish_reason is not None:
            self._observe_end(timeline, output, at, tenant)

    def _observe_end(
        self, timeline: Timeline, output: RequestOutput, at: float, tenant: str
    ) -> None:
        self._e2e.observe(at - timeline.arrival)
        self._queue.observe(output.queue_seconds)
        self._tenant_queue.labels(tenant).observe(output.queue_seconds)
        first, last = timeline.first_token_at, timeline.last_token_at
        if first is None or last is None:
            return
        self._decode.observe(last - first)
        if timeline.tokens > 1:
            mean = (last - first) / (timeline.tokens - 1)
            self._tpot.observe(mean)
            self._tenant_tpot.labels(tenant).observe(mean)
