"""The pool of KV blocks: who holds each, whose bytes it carries, which one goes next.

A block is *in use* (ref count above 0), *retained* (no user, its content is findable through the
prefix index) or *free*. Block 0 is never handed out: it stays zero and pads block tables.
No torch here: a block is a number, its bytes live in the model runner.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

from fleetward_api.scope import Scope

NULL_BLOCK = 0


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose bytes a block carries: the scope and the floor its request was authorised at."""

    scope: Scope
    floor: int


class BlockPool:
    """Ref counts, the free list, and the least recently released order of retained blocks.

    Args:
        num_blocks: blocks that can be handed out; ids 1 to num_blocks.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"a pool needs at least one block, not {num_blocks}")
        self.num_blocks = num_blocks
        self._ref_counts = [0] * (num_blocks + 1)
        self._retained = [False] * (num_blocks + 1)
        self._owners: list[Owner | None] = [None] * (num_blocks + 1)
        self._free = deque(range(1, num_blocks + 1))
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._dirty: dict[int, None] = {}
        self.num_references = 0  # of all blocks: each user of a block is one

    @property
    def num_available(self) -> int:
        """Blocks that `allocate` can hand out now: free ones and retained ones nobody uses."""
        return len(self._free) + len(self._idle)

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

    def next_eviction(self) -> int | None:
        """The retained block that the next `allocate` would take over, or None if one is free."""
        return None if self._free else next(iter(self._idle), None)

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
        self._owners[block] = owner
        self._ref_counts[block] = 1
        self.num_references += 1
        return block

    def acquire(self, block: int) -> None:
        """Add a user to a block that is in use or retained."""
        if self._ref_counts[block] == 0:
            if not self._retained[block]:
                raise RuntimeError(f"block {block} is free: it can't be shared")
            del self._idle[block]
        self._ref_counts[block] += 1
        self.num_references += 1

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
        if self._retained[block]:
            self._idle[block] = None
        else:
            self._free.append(block)
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
            del self._idle[block]
            self._free.append(block)

    def scrub(self, block: int) -> None:
        """Mark a block without users for overwriting; it belongs to nobody from here on."""
        if self._ref_counts[block] > 0:
            raise RuntimeError(f"block {block} is in use: it can't be overwritten")
        self._owners[block] = None
        self._dirty[block] = None

    def take_dirty(self) -> list[int]:
        """The blocks to overwrite before the next run; the caller must do so."""
        blocks = list(self._dirty)
        self._dirty.clear()
        return blocks

    def owned_below(self, scope: Scope, floor: int) -> list[int]:
        """Blocks that carry bytes of the scope from below the floor, in use or not (a scan)."""
        return [
            block
            for block, owner in enumerate(self._owners)
            if owner is not None and owner.scope == scope and owner.floor < floor
        ]

    def check_integrity(self) -> None:
        """Raise AssertionError when the pool's books contradict each other."""
        free, idle = set(self._free), set(self._idle)
        if len(free) != len(self._free) or free & idle:
            raise AssertionError("a block is listed twice")
        for block in range(1, self.num_blocks + 1):
            unused = self._ref_counts[block] == 0
            if self._ref_counts[block] < 0 or unused != (block in free or block in idle):
                raise AssertionError(f"block {block}: ref count and lists disagree")
            if unused and self._retained[block] != (block in idle):
                raise AssertionError(f"block {block}: retained and lists disagree")
            if not unused and self._owners[block] is None:
                raise AssertionError(f"block {block} is in use and belongs to nobody")
        if self._ref_counts[NULL_BLOCK] or self._owners[NULL_BLOCK] or NULL_BLOCK in free | idle:
            raise AssertionError("the null block was handed out")
        if self.num_references != sum(self._ref_counts):
            raise AssertionError("the references of all blocks were miscounted")
