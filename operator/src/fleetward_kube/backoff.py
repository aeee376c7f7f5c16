"""Delays between tries: doubling with jitter, capped so that nobody stays blind for long."""

from __future__ import annotations

import random

from fleetward_kube.errors import KubeError


class Backoff:
    """Delays of 0.1 to 0.2 s, then twice that each time, never above `cap_s`.

    The jitter keeps many clients of a server that has come back from asking in step.
    """

    def __init__(self, rng: random.Random, *, base_s: float = 0.2, cap_s: float = 5.0) -> None:
        self._rng = rng
        self._base_s = base_s
        self._cap_s = cap_s
        self._failures = 0

    def next_delay(self) -> float:
        """Seconds to wait before the next try."""
        # The exponent is bounded: a long outage must not overflow the float.
        whole = min(self._cap_s, self._base_s * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return whole * self._rng.uniform(0.5, 1.0)

    def reset(self) -> None:
        """The last try succeeded."""
        self._failures = 0


def not_before(fault: Exception, delay_s: float) -> float:
    """A delay in seconds that is no shorter than what the API server asked for."""
    asked_s = fault.retry_after_s if isinstance(fault, KubeError) else 0.0
    return max(delay_s, asked_s)
