"""One number a block that changes with any bit of its KV, computed where the KV lies.

A sum of the block's words, each times an odd number of its own, modulo 2**64 (multilinear hashing:
Carter and Wegman, "Universal classes of hash functions", 1979). A change within one word always
shows, whatever else of the block is equal; any other change shows but for one chance in 2**32 or
less. It is a check against faults, not against whoever can write into this process's memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fleetward_engine.paged_kv import KvMemory

_AT_ONCE_BYTES = 32 << 20
"""Of KV copied at a time, so that a long prefix needs no second one's memory."""


class KvFingerprint:
    """Fingerprints of blocks of one memory. The factors take one block's bytes."""

    def __init__(self, kv: KvMemory) -> None:
        self._kv = kv
        self._at_once = max(1, _AT_ONCE_BYTES // kv.block_bytes)
        words = _words(kv.raw([0]))  # [layers, 1, words]
        numbers = torch.Generator().manual_seed(0)
        size = (words.shape[0], 1, words.shape[2])
        factors = torch.randint(-(2**62), 2**62, size, generator=numbers, dtype=torch.int64)
        self._factors = (2 * factors + 1).to(kv.device)

    def __call__(self, blocks: Sequence[int]) -> list[int]:
        """A signed 64-bit number for each block, in order; on a GPU, waits for it."""
        numbers: list[int] = []
        for start in range(0, len(blocks), self._at_once):
            words = _words(self._kv.raw(blocks[start : start + self._at_once]))
            numbers += words.mul(self._factors).sum(dim=(0, 2)).tolist()
        return numbers


def _words(raw: Tensor) -> Tensor:
    """Bytes [layers, blocks, bytes] as the widest whole numbers that they divide into."""
    kind = torch.int64 if raw.shape[2] % torch.int64.itemsize == 0 else torch.int32
    return raw.view(kind)
