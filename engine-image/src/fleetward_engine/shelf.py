"""What a tenant has cached of one retention class, and since when."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from fleetward_engine.cache_entry import Entry

_SMALL: Final = 64
"""Heaps up to this size are never swept."""


@dataclass(slots=True)
class Shelf:
    """The entries of one retention class of a tenant, as they came, and how often one was found.

    One that comes from another tier may be older than those that are here: `_ages` is a heap of
    when each was made, with husks of those that left.
    """

    entries: OrderedDict[bytes, Entry] = field(default_factory=OrderedDict)
    hits: int = 0
    _ages: list[tuple[float, bytes]] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        """Take an entry in."""
        self.entries[entry.key] = entry
        heapq.heappush(self._ages, (entry.created, entry.key))
        if len(self._ages) > _SMALL + 2 * len(self.entries):
            self._ages = [(one.created, key) for key, one in self.entries.items()]
            heapq.heapify(self._ages)

    def oldest(self) -> float | None:
        """When the oldest entry was made, monotonic seconds; None without any."""
        while self._ages:
            created, key = self._ages[0]
            entry = self.entries.get(key)
            if entry is not None and entry.created == created:
                return created
            heapq.heappop(self._ages)
        return None
