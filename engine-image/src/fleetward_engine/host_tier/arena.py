"""The memory of the tier: one row of bytes a slot. Slot 0 is never handed out."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fleetward_engine.host_tier.seal import TAG_BYTES, Bytes


class Arena:
    """Rows for sealed blocks, and one for a block on its way.

    The system gives the pages when they are written first, so an empty tier takes no memory.
    """

    def __init__(self, num_slots: int, block_bytes: int) -> None:
        # rows: [slot, sealed bytes and tag]
        self.rows: Bytes = np.zeros((num_slots + 1, block_bytes + TAG_BYTES), dtype=np.uint8)
        self.staging: Bytes = np.zeros(block_bytes, dtype=np.uint8)

    def row(self, slot: int) -> Bytes:
        """One slot's bytes."""
        row: Bytes = self.rows[slot]
        return row

    def overwrite(self, slots: Iterable[int]) -> None:
        """Zero these slots."""
        for slot in slots:
            self.rows[slot] = 0

    def clear_staging(self) -> None:
        """Overwrite the block on its way: it lay there open."""
        self.staging[:] = 0
