"""The memory that keys and values lie in: blocks of token rows, a layer at a time.

Shapes in comments: T tokens, S positions, K key-value heads, D head dim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class KvShape:
    """What one token's KV looks like in each layer, and how far back each layer sees.

    A layer attends to the last `windows[layer]` positions, its token's own among them; to all
    where that is None.
    """

    num_kv_heads: int
    num_heads: int
    head_dim: int
    block_size: int
    windows: tuple[int | None, ...]

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return len(self.windows)

    @property
    def token_width(self) -> int:
        """Numbers a token and layer: keys, then values, of all heads."""
        return 2 * self.num_kv_heads * self.head_dim

    def block_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of one block over all layers."""
        return self.num_layers * self.block_size * self.token_width * dtype.itemsize


class PagedKv:
    """The KV memory, [layer, block, slot, 2 K D]: a token's keys and values lie side by side.

    So one row copy writes a token and one row gather reads a block. It starts as zeros and block
    0 stays so: padding must never read what could be NaN.
    """

    def __init__(
        self, shape: KvShape, *, num_blocks: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.shape = shape
        self.num_blocks = num_blocks
        size = (shape.num_layers, num_blocks + 1, shape.block_size * shape.token_width)
        self._data = torch.zeros(size, dtype=dtype, device=device)

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self._data.device

    def write(self, layer: int, slots: Tensor, kv: Tensor) -> None:
        """Store tokens. slots: [T], block * slots of a block + slot; kv: [T, 2 K D]."""
        self._data[layer].view(-1, self.shape.token_width).index_copy_(0, slots, kv)

    def read(self, layer: int, blocks: Tensor) -> Tensor:
        """Whole blocks, one after the other: [S, 2, K, D]. blocks: [blocks]."""
        pages = self._data[layer].index_select(0, blocks)
        return pages.view(-1, 2, self.shape.num_kv_heads, self.shape.head_dim)

    def zero(self, blocks: Sequence[int]) -> None:
        """Overwrite blocks in every layer; on a GPU, wait until it is done."""
        self._data.index_fill_(1, torch.tensor(blocks, device=self.device), 0)
        if self._data.is_cuda:
            torch.cuda.synchronize(self.device)
