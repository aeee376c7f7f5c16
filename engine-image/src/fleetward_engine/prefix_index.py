"""The index from block keys to blocks: what may be found, for how long, and whose it is.

A key is `block_key(parent, tokens)` chained from a request's cache root, so finding one already
proves the same scope, floor, model and prefix (see `fleetward_api.cache_key`). The index never
compares tokens and never crosses roots.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from fleetward_api.owner import Owner, count_below
from fleetward_api.scope import Scope
from fleetward_engine.cache_entry import Entry
from fleetward_engine.estates import Estates
from fleetward_engine.expiry import ExpiryQueue
from fleetward_engine.outputs import KvHolding, ScopeCounts
from fleetward_engine.public_tenant import PUBLIC_TENANT
from fleetward_engine.shelf import Shelf

Departure = Literal["pool", "quota", "corrupt", "expired", "removed", "moved"]
"""Why an entry left: evicted because the pool or its tenant's share was full, or because its bytes
had changed; or not evicted. `moved` went back to the device from host memory."""

_DEPARTURES: Final = get_args(Departure)


@dataclass(slots=True)
class _Book:
    """Entries counted in, and counted out by why they left."""

    inserted: int = 0
    departed: dict[Departure, int] = field(default_factory=lambda: dict.fromkeys(_DEPARTURES, 0))


@dataclass(slots=True)
class _Ledger:
    """A tenant's entries, and its book since the engine started."""

    shelves: defaultdict[str, Shelf] = field(default_factory=lambda: defaultdict(Shelf))
    book: _Book = field(default_factory=_Book)

    def entries(self) -> list[Entry]:
        """All entries, those of each class as they came."""
        return [entry for shelf in self.shelves.values() for entry in shelf.entries.values()]


_NO_LEDGER = _Ledger()


class PrefixIndex:
    """Keys to entries, with exact expiry, and books per tenant and per owner.

    An owner's book is kept while it has entries: what has come and gone by then balances.
    """

    def __init__(self) -> None:
        self._entries: dict[bytes, Entry] = {}
        self._by_block: dict[int, Entry] = {}
        self._ledgers: defaultdict[str, _Ledger] = defaultdict(_Ledger)
        self._estates: Estates[Entry] = Estates()
        self._books: defaultdict[Owner, _Book] = defaultdict(_Book)
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

    def hit(self, entries: Iterable[Entry], now: float) -> None:
        """Record that a request found these, and uses them."""
        for entry in entries:
            entry.last_used = max(entry.last_used, now)
            self._shelf_of(entry).hits += 1

    def insert(self, entry: Entry) -> None:
        """Make a block findable.

        Raises:
            RuntimeError: the key or the block is in the index already, or its parent is not.
        """
        if entry.key in self._entries or entry.block in self._by_block:
            raise RuntimeError(f"block {entry.block} or its key is in the index already")
        if entry.parent is not None and entry.parent.key not in self._entries:
            raise RuntimeError(f"block {entry.block} could never be found: its parent is gone")
        self._entries[entry.key] = entry
        self._by_block[entry.block] = entry
        entry.link()
        entry.ticket = self._expiry.add(entry)
        ledger = self._ledgers[entry.owner.tenant]
        ledger.shelves[entry.retention_class].add(entry)
        ledger.book.inserted += 1
        self._estates.add(entry.owner, entry)
        self._books[entry.owner].inserted += 1

    def entry_of(self, block: int) -> Entry | None:
        """The entry that points at the block, if any."""
        return self._by_block.get(block)

    def public_entries(self) -> list[Entry]:
        """Those of public prefixes, each after what it goes on from."""
        return self._public.entries()

    @property
    def num_public(self) -> int:
        """How many entries are of public prefixes."""
        return sum(len(shelf.entries) for shelf in self._public.shelves.values())

    def find(self, key: bytes) -> Entry | None:
        """The entry of a key, past its deadline or not."""
        return self._entries.get(key)

    def remove(self, entry: Entry, why: Departure) -> list[Entry]:
        """Take an entry out, with all that could only be found through it, and count why.

        Returns what left, each after the entries that go on from it.
        """
        leaving = [entry] if entry.is_leaf else entry.subtree()
        for each in leaving:
            del self._entries[each.key]
            del self._by_block[each.block]
            each.unlink()
            self._expiry.discard(each.ticket)
            del self._shelf_of(each).entries[each.key]
            self._ledgers[each.owner.tenant].book.departed[why] += 1
            self._books[each.owner].departed[why] += 1
            if self._estates.remove(each.owner, each):
                del self._books[each.owner]
        return leaving

    def pop_expired(self, now: float) -> list[Entry]:
        """Take out every entry whose deadline has passed; costs nothing when none has.

        What goes on from one of them can't be found any more and goes too.
        """
        left: list[Entry] = []
        for entry in self._expiry.pop_expired(now):
            if self._entries.get(entry.key) is entry:
                left += self.remove(entry, "expired")
        return left

    def remove_below(self, scope: Scope, floor: int) -> list[Entry]:
        """Take out the scope's entries from below the floor."""
        left: list[Entry] = []
        for entry in list(self._estates.below(scope, floor)):
            if self._entries.get(entry.key) is entry:
                left += self.remove(entry, "removed")
        return left

    def limit_ttls(self, *, idle_ttl: float, max_ttl: float) -> None:
        """Shorten every entry's TTLs to these limits (seconds); none is ever lengthened.

        Those of public prefixes are nobody's data and live for as long as they are declared.
        """
        for entry in self._entries.values():
            if entry.is_public:
                continue
            before = entry.deadline
            entry.idle_ttl = min(entry.idle_ttl, idle_ttl)
            entry.max_ttl = min(entry.max_ttl, max_ttl)
            if entry.ticket is None:
                entry.ticket = self._expiry.add(entry)
            elif entry.deadline < before:
                self._expiry.refile(entry.ticket)

    def recount(self, scope: Scope, floor: int) -> int:
        """Entries of the scope from below the floor, by looking at every entry there is."""
        owners = (entry.owner for entry in self._entries.values())
        return count_below(owners, scope, floor)

    def counts(self, scope: Scope) -> ScopeCounts:
        """The scope's books: a tenant's since start, a finer scope's of owners with entries now."""
        if scope.kind == "tenant":
            ledger = self._ledgers.get(scope.tenant, _Ledger())
            return _counts([ledger.book], sum(map(_size, ledger.shelves.values())))
        owners = list(self._estates.owners(scope))
        resident = sum(map(self._estates.count, owners))
        return _counts([self._books[owner] for owner in owners], resident)

    def holdings(self) -> list[KvHolding]:
        """What each tenant has cached, by retention class; those that hold nothing too."""
        return [
            KvHolding(
                scope=Scope(tenant),
                retention_class=name,
                blocks=len(shelf.entries),
                hits=shelf.hits,
                oldest=shelf.oldest(),
            )
            for tenant, ledger in self._ledgers.items()
            for name, shelf in ledger.shelves.items()
        ]

    def entries(self) -> list[Entry]:
        """Every entry there is."""
        return list(self._entries.values())

    def scopes(self) -> Sequence[Scope]:
        """Every tenant that ever inserted, as a scope."""
        return list(map(Scope, self._ledgers))

    def check_integrity(self) -> None:
        """Raise AssertionError when the index's books contradict each other."""
        if {entry.block for entry in self._entries.values()} != set(self._by_block):
            raise AssertionError("keys and blocks disagree")
        self._estates.check_integrity({entry: entry.owner for entry in self._entries.values()})
        if len(self._books) != len(self._estates):
            raise AssertionError("a book is of an owner without entries, or missing")
        listed = 0
        scopes = {scope for entry in self._entries.values() for scope in entry.owner.scopes}
        for scope in {*scopes, *map(Scope, self._ledgers)}:
            counts = self.counts(scope)
            gone = counts.departed
            if counts.inserted - gone != counts.resident:
                raise AssertionError(f"the books of {scope} don't add up: {counts}")
        for tenant, ledger in self._ledgers.items():
            entries = ledger.entries()
            if any(entry.owner.tenant != tenant for entry in entries):
                raise AssertionError(f"{tenant} lists another tenant's key")
            if any(self._entries.get(entry.key) is not entry for entry in entries):
                raise AssertionError(f"{tenant} lists what is not in the index")
            listed += len(entries)
        if listed != len(self._entries):
            raise AssertionError("an entry is in no tenant's books")
        mortal = sum(1 for entry in self._entries.values() if not math.isinf(entry.deadline))
        if mortal != len(self._expiry):
            raise AssertionError("an entry with a TTL is not filed for expiry")
        for entry in self._entries.values():
            if entry.parent is not None and self._entries.get(entry.parent.key) is not entry.parent:
                raise AssertionError(f"block {entry.block} outlived its parent")

    @property
    def _public(self) -> _Ledger:
        return self._ledgers.get(PUBLIC_TENANT, _NO_LEDGER)

    def _shelf_of(self, entry: Entry) -> Shelf:
        return self._ledgers[entry.owner.tenant].shelves[entry.retention_class]


def _size(shelf: Shelf) -> int:
    return len(shelf.entries)


def _counts(books: Iterable[_Book], resident: int) -> ScopeCounts:
    inserted, departed = 0, _Book().departed
    for book in books:
        inserted += book.inserted
        for why, count in book.departed.items():
            departed[why] += count
    return ScopeCounts(
        inserted=inserted,
        evicted_pool=departed["pool"],
        evicted_quota=departed["quota"],
        evicted_corrupt=departed["corrupt"],
        moved=departed["moved"],
        expired=departed["expired"],
        removed=departed["removed"],
        resident=resident,
    )
