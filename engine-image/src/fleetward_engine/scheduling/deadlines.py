"""Deadlines of requests: who can't make theirs is refused at once, who missed it ends at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from fleetward_engine.errors import DeadlineUnreachable
from fleetward_engine.expiry import ExpiryQueue
from fleetward_engine.scheduling.step_budget import ScheduledSequence
from fleetward_engine.sequence import Sequence

RATE_STEPS: Final = 256
"""The rate of prompt tokens is the best of this many steps."""


class Deadlines:
    """Watches the deadlines of the requests that have one.

    The forecast is a lower bound of the wait, so that only those are refused who would be late:
    prompt tokens that are surely computed before the request's first token, at the best rate at
    which prompts were lately computed. Other tenants' prompts count while they wait, in whole, and
    not once they run: what is left of one would tell what of it was cached.
    """

    def __init__(self) -> None:
        self._queue: ExpiryQueue[Sequence] = ExpiryQueue()
        self._tickets: dict[Sequence, int | None] = {}
        self._rates: deque[float] = deque(maxlen=RATE_STEPS)

    def refuse_late(self, sequence: Sequence, tokens: int, now: float) -> None:
        """Return if a new request may make its deadline.

        `tokens` of prompts are computed before its first token. `now` in monotonic seconds.

        Raises:
            DeadlineUnreachable: it has passed, or will have before the first token.
        """
        left = sequence.deadline - now
        wait = tokens / max(self._rates) if self._rates else 0.0
        if left <= 0 or wait > left:
            raise DeadlineUnreachable(wait)

    def watch(self, sequence: Sequence) -> None:
        """From now on `passed` names it when its time is over."""
        self._tickets[sequence] = self._queue.add(sequence)

    def forget(self, sequence: Sequence) -> None:
        """It has ended."""
        self._queue.discard(self._tickets.pop(sequence, None))

    def passed(self, now: float) -> list[Sequence]:
        """Those whose deadline has passed, each once."""
        return self._queue.pop_expired(now)

    def observe(self, scheduled: Iterable[ScheduledSequence], seconds: float) -> None:
        """Take note of how long a step took; to be called before its tokens are accounted for."""
        tokens = sum(one.num_tokens for one in scheduled if not one.sequence.is_decoding)
        if tokens and seconds > 0:
            self._rates.append(tokens / seconds)
