"""Deadlines without scanning: a heap with one item per entry that has a TTL, corrected lazily."""

from __future__ import annotations

import heapq
import math
from typing import Generic, Protocol, TypeVar

_SMALL = 64
"""Heaps up to this size are never swept."""


class Expiring(Protocol):
    """Something that dies at `deadline` (monotonic seconds; infinity: never)."""

    @property
    def deadline(self) -> float:
        """When it expires, as of now: use may have moved it later."""


E = TypeVar("E", bound=Expiring)


class ExpiryQueue(Generic[E]):
    """Pops exactly the entries whose deadline has passed, each once.

    An item's recorded deadline is a lower bound of its entry's: using an entry only moves its
    deadline later, so a pop re-files it. Removed entries leave a husk, and husks are swept when
    they outnumber the living.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._entries: dict[int, E] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: E) -> int | None:
        """File an entry; returns the ticket that `discard` takes, or None if it never expires."""
        if math.isinf(entry.deadline):
            return None
        ticket, self._next = self._next, self._next + 1
        self._entries[ticket] = entry
        heapq.heappush(self._heap, (entry.deadline, ticket))
        return ticket

    def discard(self, ticket: int | None) -> None:
        """Forget an entry that left by another way. A ticket of None is nothing to forget."""
        if ticket is None:
            return
        self._entries.pop(ticket, None)
        if len(self._heap) > _SMALL and len(self._heap) > 2 * len(self._entries):
            self._rebuild()

    def refile(self, ticket: int) -> None:
        """Take note that an entry's deadline moved earlier."""
        heapq.heappush(self._heap, (self._entries[ticket].deadline, ticket))

    def pop_expired(self, now: float) -> list[E]:
        """Remove and return every entry with `deadline <= now`."""
        expired = []
        while self._heap and self._heap[0][0] <= now:
            _, ticket = heapq.heappop(self._heap)
            entry = self._entries.get(ticket)
            if entry is None:
                continue
            if entry.deadline <= now:
                del self._entries[ticket]
                expired.append(entry)
            else:
                heapq.heappush(self._heap, (entry.deadline, ticket))
        return expired

    def _rebuild(self) -> None:
        self._heap = [(entry.deadline, key) for key, entry in self._entries.items()]
        heapq.heapify(self._heap)
