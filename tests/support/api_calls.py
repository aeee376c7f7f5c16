"""What an API proxy says of calls, and what it can be told to do to them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


class Broken(Exception):
    """Raised by a hook: the caller's connection is broken off instead of answered."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it arrived; `index` counts from 0, `agent` is its User-Agent."""

    index: int
    method: str
    path: str
    query: Mapping[str, str]
    agent: str
    is_watch: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What the caller gets."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def refusal(
        cls, status: int, reason: str, message: str = "", *, retry_after_s: int | None = None
    ) -> Answer:
        """A `metav1.Status` as the API server words it."""
        headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
        return cls(status, json.dumps(status_object(status, reason, message)).encode(), headers)


@dataclass(slots=True)
class Record:
    """A call with its times (monotonic seconds) and its status; 0 while there is none."""

    call: Call
    at: float
    answered_at: float = 0.0
    status: int = 0


@dataclass(slots=True)
class Trouble:
    """What the proxy does to calls. Fractions are of all calls, watches' beginnings among them.

    `throttled`: answered 429 with `retry_after_s`. `failing`: answered 500, 503 or 504.
    `latency_s`: drawn for each call, waited before it is forwarded. `expired_watches`: so many
    watches are yet to be answered 410 instead of begun.
    """

    throttled: float = 0.0
    retry_after_s: int = 1
    failing: float = 0.0
    latency_s: Callable[[random.Random], float] | None = None
    expired_watches: int = 0

    def answer(self, call: Call, rng: random.Random) -> Answer | None:
        """What a call is answered instead of being forwarded; None where it is."""
        if call.is_watch and self.expired_watches > 0:
            self.expired_watches -= 1
            return Answer.refusal(410, "Expired")
        if rng.random() < self.throttled:
            return Answer.refusal(429, "TooManyRequests", retry_after_s=self.retry_after_s)
        if rng.random() < self.failing:
            status, reason = rng.choice(
                [(500, "InternalError"), (503, "ServiceUnavailable"), (504, "Timeout")]
            )
            return Answer.refusal(status, reason)
        return None


def status_object(status: int, reason: str, message: str = "") -> dict[str, Any]:
    """A `metav1.Status` that tells of a failure."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": status,
        "reason": reason,
        "message": message or f"a test answers {reason}",
    }


def caller_of(call: Call) -> tuple[str, str, str]:
    """Whose call, as far as a Retry-After goes: method, path and agent."""
    return call.method, call.path, call.agent
