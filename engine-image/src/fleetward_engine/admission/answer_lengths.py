"""How long answers will be, by what those of the same tenant and retention class came to."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict, deque
from itertools import accumulate
from typing import Final

WINDOW: Final = 64
"""Answers of one kind that are remembered."""
COLD_BELOW: Final = 8
"""With fewer than this, an answer is expected to come to the limit that was asked for."""
MAX_KINDS: Final = 4096
"""Kinds that are remembered; the one that has been quiet the longest is forgotten."""

Kind = tuple[str, str]
"""A tenant and a retention class."""


class AnswerLengths:
    """Expected tokens of answers, learned as they end.

    An answer that came to its own limit tells only that it would have gone on: it counts as one
    that comes to the limit, whatever that is for the answer in question. So a tenant that always
    asks for 16 tokens is not expected to stop there when it asks for 4,000.
    """

    def __init__(self) -> None:
        self._kinds: OrderedDict[Kind, _Window] = OrderedDict()

    def __len__(self) -> int:
        """How many kinds are remembered."""
        return len(self._kinds)

    def observe(self, kind: Kind, tokens: int, *, reached_limit: bool) -> None:
        """Take note of an answer that ended by itself or at its limit."""
        window = self._kinds.setdefault(kind, _Window())
        self._kinds.move_to_end(kind)
        if len(self._kinds) > MAX_KINDS:
            self._kinds.popitem(last=False)
        window.add(None if reached_limit else tokens)

    def left(self, kind: Kind, *, generated: int, limit: int) -> int:
        """Tokens still expected of an answer that has some and may come to `limit`; at least 1."""
        most = max(1, limit - generated)
        window = self._kinds.get(kind)
        if window is None or len(window) < COLD_BELOW:
            return most
        return max(1, min(most, round(window.mean_left(generated, limit))))


class _Window:
    """The last ends of one kind: lengths in order, and how many came to their limit."""

    def __init__(self) -> None:
        self._ends: deque[int | None] = deque()
        self._lengths: list[int] = []
        self._sums: list[int] = [0]

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, tokens: int | None) -> None:
        """Add an end (None: at its limit), and drop the oldest of too many."""
        self._ends.append(tokens)
        if tokens is not None:
            insort(self._lengths, tokens)
        if len(self._ends) > WINDOW:
            oldest = self._ends.popleft()
            if oldest is not None:
                self._lengths.remove(oldest)
        self._sums = [0, *accumulate(self._lengths)]

    def mean_left(self, generated: int, limit: int) -> float:
        """Mean of what is left, of those that were longer than this one is now."""
        first = bisect_right(self._lengths, generated)
        cut = max(first, bisect_right(self._lengths, limit))
        unlimited = len(self._ends) - len(self._lengths)
        longer = len(self._lengths) - first + unlimited
        if not longer:
            # Longer than all before it: as much again, as nothing speaks for less.
            return generated
        at_limit = len(self._lengths) - cut + unlimited
        total = self._sums[cut] - self._sums[first] + at_limit * limit
        return total / longer - generated
