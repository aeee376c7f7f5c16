"""Times of requests: each token and each wait is counted once, for its own tenant."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from fleetward_engine.outputs import FinishReason, RequestOutput
from fleetward_engine.server.latency_metrics import LatencyMetrics, Timeline


def output(
    tokens: int, *, finish: FinishReason | None = None, queued: float = 0.0
) -> RequestOutput:
    return RequestOutput(
        request_id="r",
        new_token_ids=(7,) * tokens,
        text_delta="",
        finish_reason=finish,
        cached_tokens=0,
        prompt_tokens=3,
        completion_tokens=tokens,
        queue_seconds=queued,
    )


class Scrape:
    """Metrics that one request after another is observed by."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = LatencyMetrics(self.registry, prefix="x_")

    def request(self, tenant: str, *steps: tuple[float, RequestOutput]) -> None:
        """A request that arrives at 10 s and gains these outputs at these times."""
        timeline = Timeline(10.0, tenant)
        for at, one in steps:
            self.metrics.observe(timeline, one, at)

    def total(self, name: str, tenant: str | None = None) -> tuple[float, float]:
        """Count and sum."""
        labels = {} if tenant is None else {"tenant": tenant}
        values = [
            self.registry.get_sample_value(f"x_{name}_{of}", labels) for of in ("count", "sum")
        ]
        return (values[0] or 0.0, round(values[1] or 0.0, 9))


def test_one_request_s_times() -> None:
    seen = Scrape()
    seen.request(
        "acme",
        (12.0, output(1, queued=1.5)),
        (12.5, output(1, queued=1.5)),
        (15.0, output(2, queued=3.0)),
        (15.0, output(0, finish="length", queued=3.0)),
    )
    assert seen.total("time_to_first_token_seconds") == (1, 2.0)
    assert seen.total("request_prefill_time_seconds") == (1, 0.5)
    assert seen.total("request_decode_time_seconds") == (1, 3.0)
    assert seen.total("inter_token_latency_seconds") == (3, 3.0)
    assert seen.total("request_time_per_output_token_seconds") == (1, 1.0)
    assert seen.total("e2e_request_latency_seconds") == (1, 5.0)
    assert seen.total("request_queue_time_seconds") == (1, 3.0)
    for name in ("time_to_first_token", "inter_token_latency", "request_time_per_output_token"):
        assert seen.total(f"tenant_{name}_seconds", "acme") == seen.total(f"{name}_seconds")
    assert seen.total("tenant_queue_time_seconds", "acme") == (1, 3.0)


def test_a_request_without_tokens_has_only_waited() -> None:
    seen = Scrape()
    seen.request("acme", (14.0, output(0, finish="deadline", queued=4.0)))
    assert seen.total("request_queue_time_seconds") == (1, 4.0)
    for name in ("time_to_first_token", "request_decode_time", "request_time_per_output_token"):
        assert seen.total(f"{name}_seconds") == (0, 0.0)


def test_one_token_has_no_time_for_a_token_after_the_first() -> None:
    seen = Scrape()
    seen.request("acme", (14.0, output(1, finish="stop")))
    assert seen.total("request_decode_time_seconds") == (1, 0.0)
    assert seen.total("request_time_per_output_token_seconds") == (0, 0.0)


def test_tenants_are_told_apart() -> None:
    seen = Scrape()
    seen.request("acme", (11.0, output(1, finish="stop")))
    seen.request("beta", (14.0, output(1, finish="stop")))
    assert seen.total("tenant_time_to_first_token_seconds", "acme") == (1, 1.0)
    assert seen.total("tenant_time_to_first_token_seconds", "beta") == (1, 4.0)
    assert seen.total("time_to_first_token_seconds") == (2, 5.0)
