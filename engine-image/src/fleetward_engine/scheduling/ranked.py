"""Disciplines whose order of two requests never changes: first come first served, and priority."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator
from itertools import pairwise

from fleetward_engine.sequence import Sequence

Rank = tuple[float, int]


def arrival_rank(sequence: Sequence) -> Rank:
    """First come, first served."""
    return (0.0, sequence.order)


def priority_rank(aging_after_s: float) -> Callable[[Sequence], Rank]:
    """Larger priorities first; waiting `aging_after_s` seconds counts as much as one level.

    A request of priority p that arrived at t ranks as one of priority 0 from p x aging before t.
    Since all waiting requests age alike, the order of two of them is fixed when the later one
    arrives, and no request is passed by any that arrive more than
    (largest priority - its own) x aging after it: none starves.
    """

    def rank(sequence: Sequence) -> Rank:
        request = sequence.request
        return (request.arrival - request.priority * aging_after_s, sequence.order)

    return rank


class RankedLine:
    """Implements `Discipline` for a rank that is fixed when a request arrives.

    Nobody yields to a better rank: who runs is preempted only for want of blocks, the worst rank
    first, so the best one always gets to its end.
    """

    def __init__(self, rank: Callable[[Sequence], Rank]) -> None:
        self._rank = rank
        self._waiting: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._waiting)

    def add(self, sequence: Sequence) -> None:
        """Insert it by its rank."""
        insort(self._waiting, sequence, key=self._rank)

    def remove(self, sequence: Sequence) -> None:
        """Take it out; ranks are unique, so its place is known."""
        del self._waiting[bisect_left(self._waiting, self._rank(sequence), key=self._rank)]

    def rank(self, sequence: Sequence) -> Rank:
        """The fixed rank."""
        return self._rank(sequence)

    def ahead_of(self, sequence: Sequence) -> Collection[Sequence]:
        """All of a better rank."""
        return self._waiting[: bisect_left(self._waiting, self._rank(sequence), key=self._rank)]

    def likely_ahead_of(self, sequence: Sequence) -> Collection[Sequence]:
        """The same: ranks are fixed."""
        return self.ahead_of(sequence)

    def charge(self, sequence: Sequence, *, prompt_tokens: int = 0, output_tokens: int = 0) -> None:
        """Service does not change a rank."""

    def must_yield(self, to: Sequence, running: Collection[Sequence]) -> None:
        """Nobody."""

    def may_pass(self, sequence: Sequence, blocked: Sequence) -> bool:
        """The scheduler's own bound is enough."""
        del sequence, blocked
        return True

    def hold_off(self, sequence: Sequence) -> None:
        """Its rank is the same tomorrow."""

    def settle(self, running: Collection[Sequence]) -> None:
        """Nothing is kept between steps."""

    def check_integrity(self) -> None:
        """Raise AssertionError when the line is out of order."""
        ranks = [self._rank(sequence) for sequence in self._waiting]
        if any(first >= second for first, second in pairwise(ranks)):
            raise AssertionError(f"the line is out of order: {ranks}")
