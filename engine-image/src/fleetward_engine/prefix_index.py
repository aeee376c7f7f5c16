"""The index from block keys to blocks: what may be found, for how long, and whose it is.

A key is `block_key(parent, tokens)` chained from a request's cache root, so finding one already
proves the same scope, floor, model and prefix (see `fleetward_api.cache_key`). The index never
compares tokens and never crosses roots.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fleetward_api.scope import Scope
from fleetward_engine.block_pool import Owner
from fleetward_engine.expiry import ExpiryQueue
from fleetward_engine.outputs import ScopeCounts

Departure = Literal["evicted", "expired", "removed"]


@dataclass(slots=True, eq=False)
class Entry:
    """One findable block. Times are monotonic seconds; a TTL of infinity never ends it."""

    key: bytes
    block: int
    owner: Owner
    created: float
    last_used: float
    idle_ttl: float = math.inf
    max_ttl: float = math.inf
    ticket: int | None = None

    @property
    def deadline(self) -> float:
        """The moment from which no lookup may find it."""
        return min(self.created + self.max_ttl, self.last_used + self.idle_ttl)


@dataclass(slots=True)
class _Ledger:
    keys: set[bytes] = field(default_factory=set)
    inserted: int = 0
    departed: dict[Departure, int] = field(
        default_factory=lambda: {"evicted": 0, "expired": 0, "removed": 0}
    )


class PrefixIndex:
    """Keys to entries, with exact expiry and per-scope books."""

    def __init__(self) -> None:
        self._entries: dict[bytes, Entry] = {}
        self._by_block: dict[int, Entry] = {}
        self._ledgers: dict[Scope, _Ledger] = {}
        self._expiry: ExpiryQueue[Entry] = ExpiryQueue()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: bytes) -> bool:
        return key in self._entries

    def lookup(self, keys: Iterable[bytes], now: float) -> list[Entry]:
        """The entries of the longest known prefix of `keys`. Changes nothing, not even recency.

        An entry past its deadline is not found even where `pop_expired` has not run yet.
        """
        found = []
        for key in keys:
            entry = self._entries.get(key)
            if entry is None or entry.deadline <= now:
                break
            found.append(entry)
        return found

    def touch(self, entries: Iterable[Entry], now: float) -> None:
        """Record a use: idle time counts from here."""
        for entry in entries:
            entry.last_used = max(entry.last_used, now)

    def insert(self, entry: Entry) -> None:
        """Make a block findable.

        Raises:
            RuntimeError: the key or the block is in the index already.
        """
        if entry.key in self._entries or entry.block in self._by_block:
            raise RuntimeError(f"block {entry.block} or its key is in the index already")
        self._entries[entry.key] = entry
        self._by_block[entry.block] = entry
        entry.ticket = self._expiry.add(entry)
        ledger = self._ledgers.setdefault(entry.owner.scope, _Ledger())
        ledger.keys.add(entry.key)
        ledger.inserted += 1

    def entry_of(self, block: int) -> Entry | None:
        """The entry that points at the block, if any."""
        return self._by_block.get(block)

    def remove(self, entry: Entry, why: Departure) -> None:
        """Take an entry out and count why."""
        del self._entries[entry.key]
        del self._by_block[entry.block]
        self._expiry.discard(entry.ticket)
        ledger = self._ledgers[entry.owner.scope]
        ledger.keys.discard(entry.key)
        ledger.departed[why] += 1

    def pop_expired(self, now: float) -> list[Entry]:
        """Take out every entry whose deadline has passed; costs nothing when none has."""
        expired = self._expiry.pop_expired(now)
        for entry in expired:
            self.remove(entry, "expired")
        return expired

    def remove_below(self, scope: Scope, floor: int) -> list[Entry]:
        """Take out the scope's entries from below the floor."""
        ledger = self._ledgers.get(scope)
        if ledger is None:
            return []
        doomed = [self._entries[key] for key in ledger.keys]
        doomed = [entry for entry in doomed if entry.owner.floor < floor]
        for entry in doomed:
            self.remove(entry, "removed")
        return doomed

    def limit_ttls(self, *, idle_ttl: float, max_ttl: float) -> None:
        """Shorten every entry's TTLs to these limits (seconds); none is ever lengthened."""
        for entry in self._entries.values():
            before = entry.deadline
            entry.idle_ttl = min(entry.idle_ttl, idle_ttl)
            entry.max_ttl = min(entry.max_ttl, max_ttl)
            if entry.ticket is None:
                entry.ticket = self._expiry.add(entry)
            elif entry.deadline < before:
                self._expiry.refile(entry.ticket)

    def recount(self, scope: Scope, floor: int) -> int:
        """Entries of the scope from below the floor, by looking at every entry there is."""
        owners = [entry.owner for entry in self._entries.values()]
        return sum(1 for owner in owners if owner.scope == scope and owner.floor < floor)

    def counts(self, scope: Scope) -> ScopeCounts:
        """The scope's books since start; zeros for a scope never seen."""
        ledger = self._ledgers.get(scope, _Ledger())
        return ScopeCounts(
            inserted=ledger.inserted,
            evicted=ledger.departed["evicted"],
            expired=ledger.departed["expired"],
            removed=ledger.departed["removed"],
            resident=len(ledger.keys),
        )

    def scopes(self) -> Sequence[Scope]:
        """Every scope that ever inserted."""
        return list(self._ledgers)

    def check_integrity(self) -> None:
        """Raise AssertionError when the index's books contradict each other."""
        if {entry.block for entry in self._entries.values()} != set(self._by_block):
            raise AssertionError("keys and blocks disagree")
        listed = 0
        for scope, ledger in self._ledgers.items():
            counts = self.counts(scope)
            gone = counts.evicted + counts.expired + counts.removed
            if counts.inserted - gone != counts.resident:
                raise AssertionError(f"the books of {scope} don't add up: {counts}")
            if any(self._entries[key].owner.scope != scope for key in ledger.keys):
                raise AssertionError(f"{scope} lists another scope's key")
            listed += counts.resident
        if listed != len(self._entries):
            raise AssertionError("an entry is in no scope's books")
        mortal = sum(1 for entry in self._entries.values() if not math.isinf(entry.deadline))
        if mortal != len(self._expiry):
            raise AssertionError("an entry with a TTL is not filed for expiry")
