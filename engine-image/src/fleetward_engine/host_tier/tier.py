"""The host tier: what leaves the device for want of room waits here, and is loaded again.

A block lies in one tier at a time. Both tiers keep the same books (`BlockPool`, `PrefixIndex`):
owners, shares, lifetimes and counts mean the same here, in slots instead of blocks. Entries have no
parents here: a block comes before the one that it goes on from, whose turn to leave is later. So
what can be found is a run of keys that goes on from what the device has.

Single-threaded like the engine: a store or load is over before the next event, so that nothing can
be purged, expire or be aborted under one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as SequenceOf
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

from fleetward_api.scope import Scope
from fleetward_engine.block_pool import BlockPool
from fleetward_engine.cache_entry import Entry
from fleetward_engine.host_tier.arena import Arena
from fleetward_engine.host_tier.load_cost import LoadRates, blocks_worth_loading
from fleetward_engine.host_tier.rules import HostRules
from fleetward_engine.host_tier.seal import (
    TAG_BYTES,
    Bytes,
    KeyRing,
    Seal,
    SealDamaged,
    facts_of,
)
from fleetward_engine.model_runner import BlockMover
from fleetward_engine.outputs import HostCounters, HostStats
from fleetward_engine.prefix_index import Departure, PrefixIndex
from fleetward_engine.share_rules import ShareRules


class _NoBlocks:
    """The mover of a tier without memory, which nobody asks to move anything."""

    block_bytes = 0

    def read_block(self, block: int, into: Bytes) -> None:
        raise RuntimeError(f"block {block} of {into.size} bytes can't be stored: no host tier")

    def write_block(self, block: int, data: Bytes) -> None:
        raise RuntimeError(f"block {block} of {data.size} bytes can't be loaded: no host tier")


def no_host_tier() -> HostTier:
    """A tier that nothing enters."""
    return HostTier(
        _NoBlocks(),
        capacity_bytes=0,
        block_tokens=1,
        clock=lambda: 0.0,
        prefill_s_per_token=lambda: 0.0,
    )


class HostTier:
    """Slots of sealed blocks under a policy's rules.

    Args:
        mover: copies a device block's bytes out and in.
        capacity_bytes: memory that it may ever take; 0 is no tier.
        block_tokens: tokens a block.
        clock: monotonic seconds, for lifetimes and for the cost of loading.
        prefill_s_per_token: what computing one more prompt token takes; 0 while unknown.
    """

    def __init__(
        self,
        mover: BlockMover,
        *,
        capacity_bytes: int,
        block_tokens: int,
        clock: Callable[[], float],
        prefill_s_per_token: Callable[[], float],
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.slot_bytes = mover.block_bytes + TAG_BYTES
        self._num_slots = capacity_bytes // self.slot_bytes
        self._mover = mover
        self._block_tokens = block_tokens
        self._clock = clock
        self._prefill_s_per_token = prefill_s_per_token
        self._arena = Arena(self._num_slots, mover.block_bytes)
        self._seals: dict[int, Seal] = {}
        self._generations = 0
        self._keys = KeyRing()
        self._rules = HostRules()
        self.rates = LoadRates()
        self.counters = HostCounters()
        self.index = PrefixIndex()
        self.pool = BlockPool(max(1, self._num_slots))
        self.pool.resize(0)

    def set_rules(self, rules: HostRules) -> None:
        """Follow other rules from now on; what they don't let in any more goes at once."""
        if rules == self._rules:
            return
        before, self._rules = self._rules, rules
        for entry in self.index.entries():
            if entry.retention_class not in rules.classes or before.encrypt != rules.encrypt:
                self._remove(entry, "expired")
        self.pool.resize(min(self._num_slots, rules.size // self.slot_bytes))
        while (eviction := self.pool.next_excess()) is not None:
            self._evict_slot(eviction.block, eviction.reason)
        self._trim()

    def set_share_rules(self, rules: ShareRules) -> None:
        """Give each tenant the same parts of this tier as of the device's pool."""
        self.pool.accounts.set_rules(rules)
        self._trim()

    def store(self, entry: Entry, *, reused: bool) -> None:
        """Keep a copy of a device block that is about to leave, if the rules let it in.

        Args:
            entry: as the device's index had it.
            reused: whether its content was ever found.
        """
        now = self._clock()
        if entry.retention_class not in self._rules.classes or entry.deadline <= now:
            return
        tenant = entry.owner.tenant
        if self.pool.accounts.room_for(self.pool.accounts.of(tenant)) < 1:
            return
        eviction = self.pool.next_eviction(tenant)
        if eviction is not None:
            self._evict_slot(eviction.block, eviction.reason)
        slot = self.pool.allocate(entry.owner)
        kept = entry.moved_to(slot)
        self._seal(kept, device_block=entry.block)
        self.pool.overwritten(slot)
        self.index.insert(kept)
        self.pool.retain(slot)
        if reused:
            self.pool.mark_reused(slot)
        self.pool.release(slot)
        self._overwrite_dirty()
        self.rates.stored_bytes.observe(self._mover.block_bytes, self._clock() - now)
        self.counters.offloads += 1

    def find(self, keys: Iterable[bytes], now: float) -> list[Entry]:
        """The blocks here that a prefix goes on with. Changes nothing."""
        return self.index.lookup(keys, now)

    def worth_loading(self, found: SequenceOf[Entry]) -> list[Entry]:
        """Those of the found blocks that are faster loaded than computed again."""
        count = blocks_worth_loading(
            len(found),
            block_bytes=self._mover.block_bytes,
            block_tokens=self._block_tokens,
            load_bytes_per_s=self.rates.load_bytes_per_s,
            prefill_s_per_token=self._prefill_s_per_token(),
        )
        return list(found[:count])

    @contextmanager
    def pinned(self, entries: SequenceOf[Entry]) -> Iterator[None]:
        """Keep these from being evicted while the device makes room for them."""
        for entry in entries:
            self.pool.acquire(entry.block)
        try:
            yield
        finally:
            for entry in entries:
                self.pool.release(entry.block)
            self._overwrite_dirty()

    def load(self, entries: SequenceOf[Entry], blocks: SequenceOf[int], now: float) -> int:
        """Write pinned blocks to the device, and let them go here; returns how many were whole.

        One that is damaged is dropped and counted, and those after it stay: it is a miss.
        """
        began = self._clock()
        loaded = 0
        for entry, block in zip(entries, blocks, strict=True):
            if not self._unseal(entry, device_block=block):
                self._remove(entry, "corrupt")
                self.counters.damaged += 1
                break
            self.index.hit([entry], now)
            self._remove(entry, "moved")
            loaded += 1
        seconds = self._clock() - began
        self.rates.loaded_bytes.observe(loaded * self._mover.block_bytes, seconds)
        self.counters.loads += loaded
        self.counters.load_seconds += seconds
        return loaded

    def supersede(self, key: bytes) -> None:
        """Let a block go because the device has it again, computed anew."""
        entry = self.index.find(key)
        if entry is not None:
            self._remove(entry, "moved")
            self._overwrite_dirty()

    def expire(self, now: float) -> int:
        """Drop and overwrite what has outlived its time; returns how many."""
        expired = self.index.pop_expired(now)
        for entry in expired:
            self._let_go(entry)
        self._overwrite_dirty()
        return len(expired)

    def remove_below(self, scope: Scope, floor: int) -> list[bytes]:
        """Take the scope's entries from below the floor out; returns their keys.

        Their bytes stay until `overwrite`. What is stored for the tenant from here on is sealed
        with another key, so that the old one is destroyed with the last block under it.
        """
        self._keys.retire(scope.tenant)
        removed = self.index.remove_below(scope, floor)
        for entry in removed:
            self._forget(entry)
        return [entry.key for entry in removed]

    def overwrite(self, scope: Scope, floor: int, *, limit: int | None = None) -> int:
        """Overwrite slots that a removal left, up to `limit` of them; returns how many."""
        slots = list(islice(self.pool.unused_below(scope, floor), limit))
        for slot in slots:
            self.pool.scrub(slot)
        self._overwrite_dirty()
        return len(slots)

    def stats(self) -> HostStats:
        """Who holds what here, and what came and went."""
        return HostStats(
            slots=self.pool.num_blocks,
            slot_bytes=self.slot_bytes,
            blocks=len(self.index),
            counters=replace(self.counters),
            shares=self.pool.accounts.shares(),
            holdings=tuple(self.index.holdings()),
            scope_counts={scope: self.index.counts(scope) for scope in self.index.scopes()},
        )

    def check_integrity(self) -> None:
        """Raise AssertionError when the tier's books contradict each other."""
        self.pool.check_integrity()
        self.index.check_integrity()
        uses: dict[int, int] = {}
        for slot, seal in self._seals.items():
            entry = self.index.entry_of(slot)
            if entry is None or not self.pool.is_retained(slot):
                raise AssertionError(f"slot {slot} is sealed and can't be found")
            if entry.owner != self.pool.owner(slot):
                raise AssertionError(f"slot {slot} is findable and belongs to another")
            uses[id(seal.key)] = uses.get(id(seal.key), 0) + 1
        if len(self._seals) != len(self.index):
            raise AssertionError("an entry has no seal")
        if any(seal.key.uses != uses[id(seal.key)] for seal in self._seals.values()):
            raise AssertionError("uses of a key were miscounted")
        if self.pool.num_references or self._arena.staging.any():
            raise AssertionError("a store or load was left half-way")

    def _seal(self, entry: Entry, *, device_block: int) -> None:
        self._generations += 1
        key = self._keys.take(entry.owner.tenant)
        staging, encrypt = self._arena.staging, self._rules.encrypt
        try:
            self._mover.read_block(device_block, staging)
            facts = facts_of(entry, self._generations)
            nonce = key.seal(staging, facts, self._arena.row(entry.block), encrypt=encrypt)
        finally:
            self._arena.clear_staging()
        self._seals[entry.block] = Seal(key, nonce, self._generations, encrypt)

    def _unseal(self, entry: Entry, *, device_block: int) -> bool:
        seal, staging = self._seals[entry.block], self._arena.staging
        facts = facts_of(entry, seal.generation)
        try:
            seal.key.unseal(
                self._arena.row(entry.block), seal.nonce, facts, staging, encrypt=seal.encrypted
            )
            self._mover.write_block(device_block, staging)
        except SealDamaged:
            return False
        finally:
            self._arena.clear_staging()
        return True

    def _trim(self) -> None:
        """Evict what tenants hold above their shares, which a smaller tier lowers too."""
        for account in self.pool.accounts:
            while (eviction := self.pool.next_surplus(account.tenant)) is not None:
                self._evict_slot(eviction.block, eviction.reason)
        self._overwrite_dirty()

    def _evict_slot(self, slot: int, why: Departure) -> None:
        entry = self.index.entry_of(slot)
        if entry is None:
            raise RuntimeError(f"slot {slot} is retained without an index entry")
        self._remove(entry, why)

    def _remove(self, entry: Entry, why: Departure) -> None:
        for each in self.index.remove(entry, why):
            self._let_go(each)

    def _let_go(self, entry: Entry) -> None:
        self._forget(entry)
        if self.pool.ref_count(entry.block) == 0:
            self.pool.scrub(entry.block)

    def _forget(self, entry: Entry) -> None:
        seal = self._seals.pop(entry.block)
        self._keys.give_back(entry.owner.tenant, seal.key)
        self.pool.forget(entry.block)

    def _overwrite_dirty(self) -> None:
        self._arena.overwrite(self.pool.take_dirty())
