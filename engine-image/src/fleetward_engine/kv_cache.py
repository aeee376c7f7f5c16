"""Block pool and prefix index as one: the only place where blocks change hands.

Scrub rules: a block is overwritten when its last user lets it go and the index doesn't hold it,
when it expires, when a purge removes it, and before another scope, or the same one at another
floor, writes into it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from fleetward_api.scope import Scope
from fleetward_engine.block_pool import BlockPool
from fleetward_engine.prefix_index import Entry, PrefixIndex
from fleetward_engine.request import CacheContext
from fleetward_engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Purged:
    """Keys that a purge took out, blocks it freed for overwriting, blocks still in use."""

    keys: tuple[bytes, ...]
    blocks: tuple[int, ...]
    blocks_in_use: int


class KvCache:
    """What the scheduler asks for room and the engine asks for deletion.

    Args:
        num_blocks: blocks in the pool. block_size: tokens a block.
        enable_prefix_caching: False looks up and inserts nothing.
    """

    def __init__(self, *, num_blocks: int, block_size: int, enable_prefix_caching: bool) -> None:
        self.pool = BlockPool(num_blocks)
        self.index = PrefixIndex()
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.query_tokens = 0
        self.hit_tokens = 0
        self._floors: dict[Scope, int] = {}

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold this many tokens."""
        return -(-num_tokens // self.block_size)

    def admit(self, sequence: Sequence, now: float) -> bool:
        """Give a sequence its cached prefix and room for every token it knows, or nothing.

        The whole need is reserved at once, so two half-loaded prompts can't block each other.
        """
        hits = self._lookup(sequence, now)
        fresh = self.blocks_for(len(sequence.token_ids)) - len(hits)
        unused = sum(1 for entry in hits if self.pool.ref_count(entry.block) == 0)
        if fresh > self.pool.num_available - unused:
            return False
        for entry in hits:
            self.pool.acquire(entry.block)
        self.index.touch(hits, now)
        sequence.block_table = [entry.block for entry in hits]
        sequence.block_table += [self._allocate(sequence) for _ in range(fresh)]
        sequence.num_committed = len(hits)
        sequence.num_computed = len(hits) * self.block_size
        if sequence.cached_tokens is None:
            sequence.cached_tokens = sequence.num_computed
            sequence.admitted_at = now
            self.query_tokens += sequence.num_prompt_tokens
            self.hit_tokens += sequence.num_computed
        return True

    def can_grow(self, sequence: Sequence) -> bool:
        """Whether `grow` would find room."""
        return self._missing(sequence) <= self.pool.num_available

    def grow(self, sequence: Sequence) -> None:
        """Give a running sequence room for every token it knows."""
        for _ in range(self._missing(sequence)):
            sequence.block_table.append(self._allocate(sequence))

    def commit(self, sequence: Sequence, now: float) -> None:
        """Make a sequence's full blocks findable, where its request may leave any behind.

        Call it only once logits computed from these blocks were seen to be finite.
        """
        context = sequence.request.cache
        if not (context.store and self._may_use(context)):
            return
        full = sequence.num_computed // self.block_size
        keys = sequence.block_keys(full, self.block_size)
        for position in range(sequence.num_committed, full):
            if keys[position] not in self.index:
                block = sequence.block_table[position]
                self.index.insert(_entry(keys[position], block, sequence, now))
                self.pool.retain(block)
        sequence.num_committed = full

    def release(self, sequence: Sequence) -> None:
        """Take a sequence's blocks back; tails first, so that prefixes are evicted last."""
        for block in reversed(sequence.block_table):
            self.pool.release(block)
        sequence.restart()

    def expire(self, now: float) -> int:
        """Drop every entry past its TTL; their blocks are overwritten unless still in use."""
        expired = self.index.pop_expired(now)
        for entry in expired:
            self.pool.forget(entry.block)
            if self.pool.ref_count(entry.block) == 0:
                self.pool.scrub(entry.block)
        return len(expired)

    def limit_ttls(self, *, idle_ttl_ms: int | None, max_ttl_ms: int | None) -> None:
        """Shorten the TTLs of everything cached to these limits."""
        self.index.limit_ttls(idle_ttl=_seconds(idle_ttl_ms), max_ttl=_seconds(max_ttl_ms))

    def fenced(self, context: CacheContext) -> bool:
        """Whether the request was authorised below its scope's floor."""
        return context.floor < self._floors.get(context.scope, 0)

    def fence(self, scope: Scope, floor: int) -> None:
        """Raise the scope's floor: requests from below it look up and insert nothing any more."""
        self._floors[scope] = max(floor, self._floors.get(scope, 0))

    def purge(self, scope: Scope, floor: int, *, scrub: bool) -> Purged:
        """Remove the scope's entries from below the floor, and mark its bytes for overwriting.

        Bytes are found by the owner of each block, so tails that never reached the index and
        blocks evicted long ago go too.
        """
        self.fence(scope, floor)
        entries = self.index.remove_below(scope, floor)
        for entry in entries:
            self.pool.forget(entry.block)
        owned = self.pool.owned_below(scope, floor)
        idle = [block for block in owned if self.pool.ref_count(block) == 0]
        if scrub:
            for block in idle:
                self.pool.scrub(block)
        return Purged(
            keys=tuple(entry.key for entry in entries),
            blocks=tuple(idle) if scrub else (),
            blocks_in_use=len(owned) - len(idle),
        )

    def scrub_idle(self, scope: Scope, floor: int, *, limit: int) -> int:
        """Mark up to `limit` unused blocks of the scope for overwriting; returns how many."""
        owned = self.pool.owned_below(scope, floor)
        idle = [block for block in owned if self.pool.ref_count(block) == 0][:limit]
        for block in idle:
            self.pool.scrub(block)
        return len(idle)

    def probe(self, keys: SequenceOf[bytes], now: float) -> int:
        """How many of these keys the lookup that requests use would still find."""
        return sum(len(self.index.lookup([key], now)) for key in keys)

    def check_integrity(self, sequences: SequenceOf[Sequence]) -> None:
        """Raise AssertionError when pool, index and these (all running) sequences disagree."""
        self.pool.check_integrity()
        self.index.check_integrity()
        users: dict[int, int] = {}
        for sequence in sequences:
            for block in sequence.block_table:
                users[block] = users.get(block, 0) + 1
        for block in range(1, self.pool.num_blocks + 1):
            if self.pool.ref_count(block) != users.get(block, 0):
                raise AssertionError(f"block {block}: ref count and block tables disagree")
            entry = self.index.entry_of(block)
            if entry is not None and entry.owner != self.pool.owner(block):
                raise AssertionError(f"block {block} is findable and belongs to another")
            if self.pool.is_retained(block) != (entry is not None):
                raise AssertionError(f"block {block}: retained and index disagree")

    def _may_use(self, context: CacheContext) -> bool:
        return self.enable_prefix_caching and context.root is not None and not self.fenced(context)

    def _lookup(self, sequence: Sequence, now: float) -> list[Entry]:
        if not self._may_use(sequence.request.cache):
            return []
        # The last known token is always computed: its logits choose the next one.
        count = (len(sequence.token_ids) - 1) // self.block_size
        return self.index.lookup(sequence.block_keys(count, self.block_size), now)

    def _missing(self, sequence: Sequence) -> int:
        return max(0, self.blocks_for(len(sequence.token_ids)) - len(sequence.block_table))

    def _allocate(self, sequence: Sequence) -> int:
        block = self.pool.next_eviction()
        if block is not None:
            entry = self.index.entry_of(block)
            if entry is None:
                raise RuntimeError(f"block {block} is retained without an index entry")
            self.index.remove(entry, "evicted")
            self.pool.forget(block)
        return self.pool.allocate(sequence.owner)


def _entry(key: bytes, block: int, sequence: Sequence, now: float) -> Entry:
    context = sequence.request.cache
    return Entry(
        key=key,
        block=block,
        owner=sequence.owner,
        created=now,
        last_used=now,
        idle_ttl=_seconds(context.idle_ttl_ms),
        max_ttl=_seconds(context.max_ttl_ms),
    )


def _seconds(milliseconds: int | None) -> float:
    return math.inf if milliseconds is None else milliseconds / 1000
