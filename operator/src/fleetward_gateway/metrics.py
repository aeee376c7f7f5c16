"""The gateway's metrics. Names are API: they are only ever added to."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from fleetward_api.tenant_label import TenantLabel

_PREFIX: Final = "fleetward_gateway"
_BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
    *(10.0, 30.0, 60.0, 120.0, 300.0),
)


class Metrics:
    """Every series, in a registry of its own.

    `model` labels only hold names from the catalogue: a client's text never becomes a label.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._tenant = TenantLabel()
        self._requests = self._counter(
            "requests", "Answers by status code.", "code", "model", "tenant"
        )
        self._in_flight = self._gauge("inflight_requests", "Requests being served.")
        self._first_byte = self._histogram(
            "time_to_first_byte_seconds", "From a request's head to the first byte of its answer."
        )
        self._duration = self._histogram(
            "upstream_duration_seconds", "From sending to an engine to the end of its answer."
        )
        self._auth_failures = self._counter(
            "auth_failures", "Requests refused for their API key.", "reason"
        )
        self._retries = self._counter("retries", "Requests sent to a second engine.", "model")
        self._aborted = self._counter(
            "aborted_requests", "Requests ended before their answer was complete.", "reason"
        )
        self._held = self._gauge("held_body_bytes", "Bytes of request bodies held now.")
        self._floors = self._gauge("floors_version", "Version of the floors in force.")
        self._invalid = self._gauge(
            "config_objects_invalid", "Objects that cannot be used as they stand.", "kind"
        )
        self._silence = self._gauge(
            "watch_silence_seconds", "Seconds since the API server was last heard.", "watch"
        )
        self._ready = self._gauge("ready", "1 when requests may come.")
        self._lag = self._gauge(
            "event_loop_lag_seconds", "Longest time between two scrapes that nothing was served."
        )

    def answered(self, *, code: int, model: str, tenant: str) -> None:
        """One request got its answer."""
        self._requests.labels(str(code), model, self._tenant.of(tenant)).inc()

    def began(self) -> None:
        """One request came in; pair with `ended`."""
        self._in_flight.inc()

    def ended(self) -> None:
        """It is over, in whatever way."""
        self._in_flight.dec()

    def first_byte(self, model: str, seconds: float) -> None:
        """The first byte of an engine's answer went out."""
        self._first_byte.labels(model).observe(seconds)

    def upstream_done(self, model: str, seconds: float) -> None:
        """An engine's answer is complete."""
        self._duration.labels(model).observe(seconds)

    def auth_failed(self, reason: str) -> None:
        """An API key was missing, unknown or expired."""
        self._auth_failures.labels(reason).inc()

    def retried(self, model: str) -> None:
        """A request goes to a second engine."""
        self._retries.labels(model).inc()

    def aborted(self, reason: str) -> None:
        """A request ended before its answer was complete."""
        self._aborted.labels(reason).inc()

    def set_state(
        self,
        *,
        ready: bool,
        held_bytes: int,
        floors_version: int,
        invalid: dict[str, int],
        silence: dict[str, float],
        lag_s: float,
    ) -> None:
        """Bring the gauges up to date; called before each scrape."""
        self._ready.set(ready)
        self._held.set(held_bytes)
        self._floors.set(floors_version)
        self._lag.set(lag_s)
        self._invalid.clear()
        for kind, count in invalid.items():
            self._invalid.labels(kind).set(count)
        for watch, seconds in silence.items():
            self._silence.labels(watch).set(seconds)

    def exposition(self) -> bytes:
        """The text format that Prometheus reads."""
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(
            f"{_PREFIX}_{name}", text, ("model",), buckets=_BUCKETS, registry=self.registry
        )
