"""What must hold between pool, index, tiers and the block tables of those that run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fleetward_engine.block_pool import BlockPool
from fleetward_engine.prefix_index import PrefixIndex


def check_tiers(device: PrefixIndex, host: PrefixIndex) -> None:
    """Raise AssertionError when a block is findable in both tiers."""
    if any(entry.key in device for entry in host.entries()):
        raise AssertionError("a block is findable in both tiers")


def check_blocks(pool: BlockPool, index: PrefixIndex, tables: Sequence[Sequence[int]]) -> None:
    """Raise AssertionError when pool, index and these block tables (all there are) disagree."""
    users = Counter(block for table in tables for block in table)
    for block in range(1, pool.num_blocks + 1):
        if pool.ref_count(block) != users[block]:
            raise AssertionError(f"block {block}: ref count and block tables disagree")
        entry = index.entry_of(block)
        if entry is not None and entry.owner != pool.owner(block):
            raise AssertionError(f"block {block} is findable and belongs to another")
        if pool.is_retained(block) != (entry is not None):
            raise AssertionError(f"block {block}: retained and index disagree")
        parent = entry.parent if entry is not None else None
        if parent is not None and users[parent.block] < users[block]:
            raise AssertionError(f"block {block} is in use and the one before it is not")
    for account in pool.accounts:
        first = account.next_block()
        entry = None if first is None else index.entry_of(first)
        if entry is not None and not entry.is_leaf and not account.is_public:
            raise AssertionError(f"block {first} would be evicted before those after it")
