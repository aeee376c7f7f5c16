"""The pool of KV blocks: who holds each, whose bytes it carries, which one goes next.

A block is *in use* (ref count above 0), *retained* (no user, its content is findable through the
prefix index) or *free*. Block 0 is never handed out: it stays zero and pads block tables.
No torch here: a block is a number, its bytes live in the model runner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from fleetward_api.owner import Owner, count_below
from fleetward_api.scope import Scope
from fleetward_engine.estates import Estates
from fleetward_engine.share_rules import ShareRules
from fleetward_engine.tenant_accounts import Account, TenantAccounts

NULL_BLOCK = 0
EvictionReason = Literal["pool", "quota"]
"""Why a cached block went: the pool was full, or its tenant's share was."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """A retained block that has to leave the index, and why."""

    block: int
    reason: EvictionReason


class BlockPool:
    """Ref counts, the free list, and each tenant's share.

    Args:
        num_blocks: blocks that can be handed out; ids 1 to num_blocks.
        rules: who may hold how much, and what goes first.
    """

    def __init__(self, num_blocks: int, rules: ShareRules | None = None) -> None:
        if num_blocks < 1:
            raise ValueError(f"a pool needs at least one block, not {num_blocks}")
        self.num_blocks = num_blocks
        self.accounts = TenantAccounts(num_blocks, rules or ShareRules())
        self._ref_counts = [0] * (num_blocks + 1)
        self._retained = [False] * (num_blocks + 1)
        self._owners: list[Owner | None] = [None] * (num_blocks + 1)
        self._estates: Estates[int] = Estates()
        self._reused = bytearray(num_blocks + 1)
        self._free = deque(range(1, num_blocks + 1))
        self._withheld: list[int] = []  # blocks beyond what `resize` lets it hand out
        self._num_idle = 0
        self._dirty: dict[int, None] = {}
        self.num_references = 0  # of all blocks: each user of a block is one

    @property
    def num_available(self) -> int:
        """Blocks that `allocate` can hand out now: free ones and retained ones nobody uses."""
        return len(self._free) + self._num_idle

    @property
    def num_in_use(self) -> int:
        """Blocks with at least one user."""
        return self.num_blocks - self.num_available

    def ref_count(self, block: int) -> int:
        """How many sequences use the block."""
        return self._ref_counts[block]

    def is_retained(self, block: int) -> bool:
        """Whether the block's content outlives its users."""
        return self._retained[block]

    def owner(self, block: int) -> Owner | None:
        """Whose bytes the block carries; None when it was overwritten or never written."""
        return self._owners[block]

    def resize(self, num_blocks: int) -> None:
        """Hand out at most this many of the blocks that the pool was made with.

        When it holds more, `next_excess` tells what has to leave first.
        """
        self.num_blocks = num_blocks
        self.accounts.resize(num_blocks)
        idle = [*self._free, *self._withheld]
        count = max(0, num_blocks - self._num_held)
        self._free, self._withheld = deque(idle[:count]), idle[count:]

    def next_excess(self) -> Eviction | None:
        """What must leave the index because the pool is smaller now; None if nothing."""
        fits = self._num_held <= self.num_blocks
        return None if fits else _eviction(self.accounts.next_excess(), "pool")

    def next_eviction(self, tenant: str) -> Eviction | None:
        """What must leave the index before `allocate` for the tenant; None if nothing.

        A tenant at its limit replaces its own, also while blocks are free. In a full pool the
        first by the rules goes, of its own blocks and of those that others hold beyond their
        guaranteed share.
        """
        account = self.accounts.of(tenant)
        if self.accounts.at_limit(account):
            return _eviction(account.next_block(), "quota")
        return None if self._free else _eviction(self.accounts.next_victim(account), "pool")

    def next_surplus(self, tenant: str) -> Eviction | None:
        """What must leave the index so that the tenant's cache keeps head-room; None if nothing."""
        return _eviction(self.accounts.surplus(self.accounts.of(tenant)), "quota")

    def allocate(self, owner: Owner) -> int:
        """Hand out one block with one user, and mark it for overwriting on a change of owner.

        A retained block must be forgotten first (see `next_eviction`), so that its index entry
        can't outlive it.

        Raises:
            RuntimeError: no free block.
        """
        if not self._free:
            raise RuntimeError("no free block: evict one first")
        block = self._free.popleft()
        before = self._owners[block]
        if before is not None and before != owner:
            # The new user overwrites a block token by token; the rest must not stay another's, nor
            # pass as made above a floor when it was made below.
            self._dirty[block] = None
        if before != owner:
            self._belongs_to(block, owner)
        self._ref_counts[block] = 1
        self._reused[block] = False
        self.num_references += 1
        self.accounts.use(self.accounts.of(owner.tenant))
        return block

    def acquire(self, block: int) -> None:
        """Add a user to a block that is in use or retained."""
        if self._ref_counts[block] == 0:
            if not self._retained[block]:
                raise RuntimeError(f"block {block} is free: it can't be shared")
            account = self._account_of(block)
            self.accounts.uncache(account, block)
            self.accounts.use(account)
            self._num_idle -= 1
        self._ref_counts[block] += 1
        self.num_references += 1

    def mark_reused(self, block: int) -> None:
        """Take note that the content was found by a later request, which protects it."""
        self._reused[block] = True

    def was_reused(self, block: int) -> bool:
        """Whether the content was found by a later request."""
        return bool(self._reused[block])

    def release(self, block: int) -> None:
        """Drop one user; the last one leaves the block retained, or free and to be overwritten.

        So no bytes outlive their request but those that the index accounts for, with their TTL.
        """
        if self._ref_counts[block] < 1:
            raise RuntimeError(f"block {block} has no user to release")
        self._ref_counts[block] -= 1
        self.num_references -= 1
        if self._ref_counts[block] > 0:
            return
        account = self._account_of(block)
        self.accounts.unuse(account)
        if self._retained[block]:
            self.accounts.cache(account, block, reused=bool(self._reused[block]))
            self._num_idle += 1
        else:
            self._put_back(block)
            self.scrub(block)

    def retain(self, block: int) -> None:
        """Keep the block's content after its last user: it is in the index now."""
        if self._ref_counts[block] < 1:
            raise RuntimeError(f"block {block} has no user, so nothing to retain")
        self._retained[block] = True

    def forget(self, block: int) -> None:
        """Undo `retain`: the block left the index; without users it is free at once.

        Its bytes stay until it is scrubbed or written by its next user.
        """
        if not self._retained[block]:
            raise RuntimeError(f"block {block} is not retained")
        self._retained[block] = False
        if self._ref_counts[block] == 0:
            self.accounts.uncache(self._account_of(block), block)
            self._num_idle -= 1
            self._put_back(block)

    def scrub(self, block: int) -> None:
        """Mark a block without users for overwriting; it belongs to nobody from here on."""
        if self._ref_counts[block] > 0:
            raise RuntimeError(f"block {block} is in use: it can't be overwritten")
        self._belongs_to(block, None)
        self._dirty[block] = None

    def overwritten(self, block: int) -> None:
        """Take note that the whole block was written just now: nothing of before is left in it."""
        self._dirty.pop(block, None)

    def take_dirty(self) -> list[int]:
        """The blocks to overwrite before the next run; the caller must do so."""
        blocks = list(self._dirty)
        self._dirty.clear()
        return blocks

    def owned_below(self, scope: Scope, floor: int) -> list[int]:
        """Blocks that carry bytes of the scope from below the floor, in use or not.

        By the books of who holds what, which cost no more than what is found.
        """
        return list(self._estates.below(scope, floor))

    def unused_below(self, scope: Scope, floor: int) -> Iterator[int]:
        """Those of `owned_below` that nobody uses; not to be overwritten while gone through."""
        owned = self._estates.below(scope, floor)
        return (block for block in owned if self._ref_counts[block] == 0)

    def count_below(self, scope: Scope, floor: int) -> int:
        """How many blocks `owned_below` should find, by looking at every block's owner."""
        return count_below(self._owners, scope, floor)

    def check_integrity(self) -> None:
        """Raise AssertionError when the pool's books contradict each other."""
        unused_blocks = [*self._free, *self._withheld]
        free, idle = set(unused_blocks), set(self._cached())
        if len(free) != len(unused_blocks) or free & idle or len(idle) != self._num_idle:
            raise AssertionError("a block is listed twice")
        if len(self._free) != max(0, self.num_blocks - self._num_held):
            raise AssertionError("more or fewer blocks are free than the pool's size lets")
        for block in range(1, len(self._ref_counts)):
            unused = self._ref_counts[block] == 0
            if self._ref_counts[block] < 0 or unused != (block in free or block in idle):
                raise AssertionError(f"block {block}: ref count and lists disagree")
            if unused and self._retained[block] != (block in idle):
                raise AssertionError(f"block {block}: retained and lists disagree")
            if self._owners[block] is None and not (unused and block in free):
                raise AssertionError(f"block {block} is in use and belongs to nobody")
        if self._ref_counts[NULL_BLOCK] or self._owners[NULL_BLOCK] or NULL_BLOCK in free | idle:
            raise AssertionError("the null block was handed out")
        owners = {block: owner for block, owner in enumerate(self._owners) if owner is not None}
        self._estates.check_integrity(owners)
        if self.num_references != sum(self._ref_counts):
            raise AssertionError("the references of all blocks were miscounted")
        self._check_accounts()

    def _check_accounts(self) -> None:
        for account in self.accounts:
            for block in (*account.newcomers, *account.protected):
                if self._account_of(block) is not account:
                    raise AssertionError(f"block {block} is cached in another tenant's account")
        used = [
            self._account_of(block)
            for block in range(1, len(self._ref_counts))
            if self._ref_counts[block] > 0
        ]
        self.accounts.check_integrity([used.count(account) for account in self.accounts])

    @property
    def _num_held(self) -> int:
        """Blocks in use or cached."""
        return len(self._ref_counts) - 1 - len(self._free) - len(self._withheld)

    def _put_back(self, block: int) -> None:
        # Counted without the block, which is in no list yet.
        room = self._num_held - 1 < self.num_blocks
        (self._free if room else self._withheld).append(block)

    def _cached(self) -> Iterator[int]:
        for account in self.accounts:
            yield from account.newcomers
            yield from account.protected

    def _account_of(self, block: int) -> Account:
        owner = self._owners[block]
        if owner is None:
            raise RuntimeError(f"block {block} belongs to nobody")
        return self.accounts.of(owner.tenant)

    def _belongs_to(self, block: int, owner: Owner | None) -> None:
        before = self._owners[block]
        if before is not None:
            self._estates.remove(before, block)
        if owner is not None:
            self._estates.add(owner, block)
        self._owners[block] = owner


def _eviction(block: int | None, reason: EvictionReason) -> Eviction | None:
    return None if block is None else Eviction(block, reason)
