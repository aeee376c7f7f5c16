"""Block pool and prefix index as one: the only place where blocks change hands.

A block in use has the whole cached prefix before it in use, and an entry never outlives its parent
in the index. So what is cached only is released from its end, and evicted leaves first.

Scrub rules: a block is overwritten when its last user lets it go and the index doesn't hold it,
when it is evicted or expires, when a purge removes it, and before another scope, or the same one
at another floor, writes into it.
"""

from __future__ import annotations

import math
from collections.abc import Container
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace
from itertools import islice

from fleetward_api.cache_key import block_key
from fleetward_api.owner import Owner
from fleetward_api.scope import Scope
from fleetward_engine.block_pool import BlockPool, Eviction
from fleetward_engine.cache_entry import Entry
from fleetward_engine.canary import Canary, ReadFingerprints
from fleetward_engine.floors_in_force import FloorsInForce
from fleetward_engine.host_tier.tier import HostTier, no_host_tier
from fleetward_engine.kv_integrity import check_blocks, check_tiers
from fleetward_engine.outputs import ScopeCounts
from fleetward_engine.prefix_index import Departure, PrefixIndex
from fleetward_engine.public_tenant import is_listed
from fleetward_engine.request import CacheContext, Request
from fleetward_engine.sequence import Sequence
from fleetward_engine.share_rules import ShareRules
from fleetward_engine.tenant_accounts import Account


@dataclass(frozen=True, slots=True)
class Purged:
    """Keys that a purge took out, blocks it freed for overwriting, blocks still in use.

    `host_slots` were overwritten in host memory.
    """

    keys: tuple[bytes, ...]
    blocks: tuple[int, ...]
    blocks_in_use: int
    host_slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reusable:
    """Tokens that a new request would find in the cache, and their blocks that others use now."""

    tokens: int
    blocks_in_use: int


class KvCache:
    """What the scheduler asks for room and the engine asks for deletion.

    Args:
        num_blocks: blocks in the pool. block_size: tokens a block.
        enable_prefix_caching: False looks up and inserts nothing.
        fingerprints: what a block holds as a number; None checks nothing (see `canary.py`).
        host: where blocks go that are evicted; None keeps none of them.
    """

    def __init__(
        self,
        *,
        num_blocks: int,
        block_size: int,
        enable_prefix_caching: bool,
        fingerprints: ReadFingerprints | None = None,
        host: HostTier | None = None,
    ) -> None:
        self.host = host or no_host_tier()
        self.canary = Canary(fingerprints)
        self.pool = BlockPool(num_blocks)
        self.index = PrefixIndex()
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.query_tokens = 0
        self.hit_tokens = 0
        self._floors = FloorsInForce()

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold this many tokens."""
        return -(-num_tokens // self.block_size)

    @property
    def max_request_tokens(self) -> int:
        """Tokens whose KV fits into the largest share that one tenant may hold."""
        return self.pool.accounts.max_blocks * self.block_size

    def set_share_rules(self, rules: ShareRules) -> None:
        """Follow other rules from now on; cache above a lower limit is evicted at once.

        What requests use stays theirs: `can_grow` tells the scheduler which of them can't go on.
        """
        self.pool.accounts.set_rules(rules)
        for account in self.pool.accounts:
            self._trim(account.tenant)
        self.host.set_share_rules(replace(rules, public_blocks=0))

    def begin_public(self, sequence: Sequence) -> None:
        """Let a new sequence begin with the public blocks that its prompt begins with."""
        context = sequence.request.cache
        if context.public_root is None or not self._may_use(context):
            return
        keys: list[bytes] = []
        prompt, size = sequence.request.prompt_token_ids, self.block_size
        for start in range(0, len(prompt) - size + 1, size):
            parent = keys[-1] if keys else context.public_root
            key = block_key(parent, prompt[start : start + size])
            if key not in self.index:
                break
            keys.append(key)
        sequence.begin_with(keys)

    def keep_public(self, keys: Container[bytes]) -> None:
        """Drop every public block but those of these keys, with all that goes on from it."""
        for entry in self.index.public_entries():
            if entry.key not in keys and self.index.find(entry.key) is entry:
                self._drop(entry, "removed")

    def admit(self, sequence: Sequence, now: float) -> bool:
        """Give a sequence its cached prefix and room for every token it knows, or nothing.

        The whole need is reserved at once, so two half-loaded prompts can't block each other.
        """
        for pool in (self.pool, self.host.pool):
            pool.accounts.set_priority(sequence.tenant, sequence.request.priority)
        hits = self._lookup(sequence, now)
        if self._newly_used(sequence, hits) > self.pool.accounts.room_for(self._account(sequence)):
            return False
        if self._drop_corrupt(hits):
            return self.admit(sequence, now)
        for entry in hits:
            self.pool.acquire(entry.block)
            self.pool.mark_reused(entry.block)
        self.index.hit(hits, now)
        sequence.block_table = [entry.block for entry in hits]
        sequence.num_committed = len(hits)
        self._fill_table(sequence, now)
        sequence.num_computed = sequence.num_committed * self.block_size
        if sequence.cached_tokens is None:
            sequence.cached_tokens = sequence.num_computed
            if is_listed(sequence.tenant):
                self.query_tokens += sequence.num_prompt_tokens
                self.hit_tokens += sequence.num_computed
        return True

    def reusable(self, sequence: Sequence, now: float) -> Reusable:
        """What of the sequence its own scope has cached now."""
        hits = self._lookup(sequence, now)
        in_use = sum(1 for entry in hits if self._is_shared(entry))
        loadable = self.host.worth_loading(self._lookup_host(sequence, len(hits), now))
        tokens = (len(hits) + len(loadable)) * self.block_size
        return Reusable(tokens=tokens, blocks_in_use=in_use)

    def is_over_share(self, sequence: Sequence, now: float) -> bool:
        """Whether `admit` fails for the tenant's own limit: only its own requests' ends help."""
        needed = self._newly_used(sequence, self._lookup(sequence, now))
        return needed > self.pool.accounts.share_left(self._account(sequence))

    def can_grow(self, sequence: Sequence) -> bool:
        """Whether `grow` would find room."""
        missing = self._missing(sequence)
        return missing == 0 or missing <= self.pool.accounts.room_for(self._account(sequence))

    def gives_room(self, running: Sequence, *, to: Sequence) -> bool:
        """Whether preempting a running sequence can help one that can't grow.

        Its own tenant's always can. Another tenant's can't where the limit is the own tenant's, nor
        while that other tenant stays within what it is guaranteed. Where no other sequence helps,
        one whose request fits its tenant's share at all can grow.
        """
        accounts = self.pool.accounts
        mine, theirs = self._account(to), self._account(running)
        if mine is theirs:
            return True
        within_limit = self._missing(to) <= accounts.share_left(mine)
        return within_limit and theirs.in_use > accounts.floor_of(theirs)

    def grow(self, sequence: Sequence) -> None:
        """Give a running sequence room for every token it knows."""
        for _ in range(self._missing(sequence)):
            sequence.block_table.append(self._allocate(sequence))

    def commit(self, sequence: Sequence, now: float) -> None:
        """Make a sequence's full blocks findable, where its request may leave any behind.

        A block that another request made findable meanwhile is used in place of the own copy. Where
        the prefix before a block is findable no more (it outlived its TTL), neither is the block.
        Call it only once logits computed from these blocks were seen to be finite.
        """
        context = sequence.request.cache
        if not (context.store and self._may_use(context)):
            return
        full = sequence.num_computed // self.block_size
        keys = sequence.block_keys(full, self.block_size)
        table = sequence.block_table
        fresh: list[Entry] = []
        while sequence.num_committed < full:
            position = sequence.num_committed
            parent = self.index.entry_of(table[position - 1]) if position else None
            if position and parent is None:
                break
            known = self.index.find(keys[position])
            if known is not None and self._drop_corrupt([known]):
                known = None
            if known is None and position < sequence.num_public:
                # Withdrawn meanwhile. No request makes anything public, nor goes on from nothing.
                break
            if known is None:
                fresh.append(_entry(keys[position], sequence, parent, now))
                self.index.insert(fresh[-1])
                self.pool.retain(table[position])
                self.host.supersede(keys[position])
            elif known.deadline > now:
                self.pool.release(table[position])
                self.pool.acquire(known.block)
                self.index.touch([known], now)
                table[position] = known.block
            else:
                break
            sequence.num_committed += 1
        self.canary.take(fresh)

    def release(self, sequence: Sequence) -> None:
        """Take a sequence's blocks back; tails first, so that prefixes are evicted last."""
        for block in reversed(sequence.block_table):
            self.pool.release(block)
        sequence.restart()
        self._trim(sequence.tenant)

    def expire(self, now: float) -> int:
        """Drop every entry past its TTL; their blocks are overwritten unless still in use."""
        expired = self.index.pop_expired(now)
        for entry in expired:
            self.pool.forget(entry.block)
            if self.pool.ref_count(entry.block) == 0:
                self.pool.scrub(entry.block)
        return len(expired) + self.host.expire(now)

    def limit_ttls(self, *, idle_ttl_ms: int | None, max_ttl_ms: int | None) -> None:
        """Shorten the TTLs of everything cached to these limits."""
        for index in (self.index, self.host.index):
            index.limit_ttls(idle_ttl=_seconds(idle_ttl_ms), max_ttl=_seconds(max_ttl_ms))

    def fence(self, scope: Scope, floor: int) -> None:
        """Raise the scope's floor: requests from below it look up and insert nothing any more."""
        self._floors.raise_to(scope, floor)

    def purge(self, scope: Scope, floor: int, *, scrub: bool) -> Purged:
        """Remove the scope's entries from below the floor, and mark its bytes for overwriting.

        Bytes are found by the owner of each block, so tails that never reached the index and
        blocks evicted long ago go too.
        """
        self.fence(scope, floor)
        entries = self.index.remove_below(scope, floor)
        for entry in entries:
            self.pool.forget(entry.block)
        host_keys = self.host.remove_below(scope, floor)
        owned = self.pool.owned_below(scope, floor)
        idle = [block for block in owned if self.pool.ref_count(block) == 0]
        if scrub:
            for block in idle:
                self.pool.scrub(block)
        if scope.kind == "tenant":
            for pool in (self.pool, self.host.pool):
                pool.accounts.close(scope.tenant)
        return Purged(
            keys=(*(entry.key for entry in entries), *host_keys),
            blocks=tuple(idle) if scrub else (),
            blocks_in_use=len(owned) - len(idle),
            host_slots=self.host.overwrite(scope, floor) if scrub else 0,
        )

    def scrub_idle(self, scope: Scope, floor: int, *, limit: int) -> int:
        """Mark up to `limit` unused blocks of the scope for overwriting; returns how many."""
        idle = list(islice(self.pool.unused_below(scope, floor), limit))
        for block in idle:
            self.pool.scrub(block)
        return len(idle)

    def probe(self, keys: SequenceOf[bytes], now: float) -> int:
        """How many of these keys the lookup that requests use would still find."""
        tiers = (self.index, self.host.index)
        return sum(len(index.lookup([key], now)) for key in keys for index in tiers)

    def counts(self, scope: Scope) -> ScopeCounts:
        """The scope's books since start, of both tiers together."""
        return self.index.counts(scope) + self.host.index.counts(scope)

    def recount(self, scope: Scope, floor: int) -> int:
        """Entries of the scope from below the floor in both tiers, by looking at every one."""
        return self.index.recount(scope, floor) + self.host.index.recount(scope, floor)

    def check_integrity(self, sequences: SequenceOf[Sequence]) -> None:
        """Raise AssertionError when pool, index and these (all running) sequences disagree."""
        self.pool.check_integrity()
        self.index.check_integrity()
        self.host.check_integrity()
        check_tiers(self.index, self.host.index)
        check_blocks(self.pool, self.index, [sequence.block_table for sequence in sequences])

    def _may_read(self, request: Request) -> bool:
        return request.reads_cache and self._may_use(request.cache)

    def _may_use(self, context: CacheContext) -> bool:
        if not self.enable_prefix_caching or context.root is None:
            return False
        return not self._floors.shut_out(context.owner)

    def _lookup(self, sequence: Sequence, now: float) -> list[Entry]:
        if not self._may_read(sequence.request):
            return []
        # The last known token is always computed: its logits choose the next one.
        count = (len(sequence.token_ids) - 1) // self.block_size
        return self.index.lookup(sequence.block_keys(count, self.block_size), now)

    def _lookup_host(self, sequence: Sequence, num_hits: int, now: float) -> list[Entry]:
        """What host memory has of the sequence after its `num_hits` blocks on the device."""
        if not (len(self.host.index) and self._may_read(sequence.request)):
            return []
        count = (len(sequence.token_ids) - 1) // self.block_size
        keys = sequence.block_keys(count, self.block_size)
        return self.host.index.lookup(keys[num_hits:], now)

    def _fill_table(self, sequence: Sequence, now: float) -> None:
        """Give a sequence the blocks that it lacks, and load what host memory has for the first.

        All of them are taken before anything is loaded.
        """
        known = len(sequence.block_table)
        found = self._lookup_host(sequence, known, now)
        worth = self.host.worth_loading(found)
        self.host.counters.refused_loads += len(found) - len(worth)
        with self.host.pinned(worth):
            sequence.block_table += [self._allocate(sequence, entry.owner) for entry in worth]
            missing = self._missing(sequence)
            sequence.block_table += [self._allocate(sequence) for _ in range(missing)]
            loaded = self.host.load(worth, sequence.block_table[known : known + len(worth)], now)
        blocks = sequence.block_table[known : known + loaded]
        moved = [entry.moved_to(block) for entry, block in zip(worth, blocks, strict=False)]
        # Whole as it was stored; but it may have changed before that, while it lay on the device.
        corrupt = self.canary.first_corrupt(moved)
        for entry in moved:
            if entry is corrupt:
                break
            before = sequence.num_committed - 1
            entry.parent = (
                self.index.entry_of(sequence.block_table[before]) if before >= 0 else None
            )
            self.index.insert(entry)
            self.pool.overwritten(entry.block)
            self.pool.retain(entry.block)
            self.pool.mark_reused(entry.block)
            sequence.num_committed += 1

    def _missing(self, sequence: Sequence) -> int:
        return max(0, self.blocks_for(len(sequence.token_ids)) - len(sequence.block_table))

    def _newly_used(self, sequence: Sequence, hits: SequenceOf[Entry]) -> int:
        """Blocks that admission would take into use: all but hits that others use already.

        Those of public prefixes lie in room of their own.
        """
        shared = sum(1 for entry in hits if self._is_shared(entry))
        return self.blocks_for(len(sequence.token_ids)) - shared

    def _is_shared(self, entry: Entry) -> bool:
        return entry.is_public or self.pool.ref_count(entry.block) > 0

    def _account(self, sequence: Sequence) -> Account:
        return self.pool.accounts.of(sequence.tenant)

    def _allocate(self, sequence: Sequence, owner: Owner | None = None) -> int:
        eviction = self.pool.next_eviction(sequence.tenant)
        if eviction is not None:
            self._evict(eviction)
        return self.pool.allocate(owner or sequence.owner)

    def _trim(self, tenant: str) -> None:
        while (eviction := self.pool.next_surplus(tenant)) is not None:
            self._evict(eviction)

    def _evict(self, eviction: Eviction) -> None:
        entry = self.index.entry_of(eviction.block)
        if entry is None:
            raise RuntimeError(f"block {eviction.block} is retained without an index entry")
        self._drop(entry, eviction.reason)

    def _drop_corrupt(self, entries: SequenceOf[Entry]) -> bool:
        """Take out the first of these whose bytes changed since, with all that go on from it."""
        corrupt = self.canary.first_corrupt(entries)
        if corrupt is not None:
            self._drop(corrupt, "corrupt")
        return corrupt is not None

    def _drop(self, entry: Entry, why: Departure) -> None:
        for each in self.index.remove(entry, why):
            self.pool.forget(each.block)
            if self.pool.ref_count(each.block) == 0:
                if why in ("pool", "quota") and not each.is_public:
                    self.host.store(each, reused=self.pool.was_reused(each.block))
                # Not left for the next user: there may be none before its time to live is over.
                self.pool.scrub(each.block)


def _entry(key: bytes, sequence: Sequence, parent: Entry | None, now: float) -> Entry:
    context = sequence.request.cache
    return Entry(
        key=key,
        block=sequence.block_table[sequence.num_committed],
        owner=sequence.owner,
        created=now,
        last_used=now,
        idle_ttl=_seconds(context.idle_ttl_ms),
        max_ttl=_seconds(context.max_ttl_ms),
        retention_class=context.retention_class,
        parent=parent,
    )


def _seconds(milliseconds: int | None) -> float:
    return math.inf if milliseconds is None else milliseconds / 1000
