"""Fingerprints of findable blocks: taken when a block becomes findable, compared at each use.

What they catch is KV that changed by itself while it lay in the cache: a write through a wrong
table, a faulty transfer, memory that fails. Such a block is never served; it is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fleetward_engine.cache_entry import Entry

ReadFingerprints = Callable[[Sequence[int]], Sequence[int]]
"""From blocks to a number each that changes with any bit of the block's KV, in every layer."""


class Canary:
    """Takes and compares fingerprints, and counts the blocks that did not match.

    Args:
        read: None switches it off: it takes nothing and finds nothing.
    """

    def __init__(self, read: ReadFingerprints | None) -> None:
        self._read = read
        self.corruptions = 0

    def take(self, entries: Sequence[Entry]) -> None:
        """Note what the blocks of new entries hold; all of their KV must be written."""
        for entry, number in self._numbers(entries):
            entry.fingerprint = number

    def first_corrupt(self, entries: Sequence[Entry]) -> Entry | None:
        """The first of these whose block no longer holds what it was made findable with."""
        for entry, number in self._numbers(entries):
            if number != entry.fingerprint:
                self.corruptions += 1
                return entry
        return None

    def _numbers(self, entries: Sequence[Entry]) -> list[tuple[Entry, int]]:
        if self._read is None or not entries:
            return []
        numbers = self._read([entry.block for entry in entries])
        return list(zip(entries, numbers, strict=True))
