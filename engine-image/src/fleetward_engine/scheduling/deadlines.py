"""Deadlines of requests: who can't make theirs is refused at once, who missed it ends at once."""

from __future__ import annotations

from fleetward_engine.errors import DeadlineUnreachable
from fleetward_engine.expiry import ExpiryQueue
from fleetward_engine.sequence import Sequence


def refuse_late(sequence: Sequence, wait_s: float, now: float) -> None:
    """Return if a new request may make its deadline.

    `wait_s` is a lower bound of the time to its first token, so that only those are refused who
    would be late. `now` in monotonic seconds.

    Raises:
        DeadlineUnreachable: it has passed, or will have before the first token.
    """
    left = sequence.deadline - now
    if left <= 0 or wait_s > left:
        raise DeadlineUnreachable(wait_s)


class Deadlines:
    """Watches the deadlines of the requests that have one."""

    def __init__(self) -> None:
        self._queue: ExpiryQueue[Sequence] = ExpiryQueue()
        self._tickets: dict[Sequence, int | None] = {}

    def watch(self, sequence: Sequence) -> None:
        """From now on `passed` names it when its time is over."""
        self._tickets[sequence] = self._queue.add(sequence)

    def forget(self, sequence: Sequence) -> None:
        """It has ended."""
        self._queue.discard(self._tickets.pop(sequence, None))

    def passed(self, now: float) -> list[Sequence]:
        """Those whose deadline has passed, each once."""
        return self._queue.pop_expired(now)
