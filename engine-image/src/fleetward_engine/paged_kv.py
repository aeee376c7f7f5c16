"""The memory that keys and values lie in: blocks of token rows, a layer at a time.

Shapes in comments: T tokens, S positions, K key-value heads, D head dim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

_SCALE_BYTES = torch.float32.itemsize


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

    def token_bytes(self, dtype: torch.dtype) -> int:
        """Bytes a token and layer; whole numbers carry scales, of keys and of values by head."""
        scales = 0 if dtype.is_floating_point else 2 * self.num_kv_heads * _SCALE_BYTES
        return self.token_width * dtype.itemsize + scales

    def block_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of one block over all layers."""
        return self.num_layers * self.block_size * self.token_bytes(dtype)


class KvMemory(Protocol):
    """Where keys and values lie. It starts as zeros, and block 0 stays so for padding to read."""

    @property
    def shape(self) -> KvShape:
        """What a token looks like."""

    @property
    def device(self) -> torch.device:
        """Where it lies."""

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers."""

    def write(self, layer: int, slots: Tensor, kv: Tensor) -> None:
        """Store tokens. slots: [T], block * slots of a block + slot; kv: [T, 2 K D]."""

    def read(self, layer: int, blocks: Tensor) -> Tensor:
        """Whole blocks, one after the other: [S, 2, K, D]. blocks: [blocks]."""

    def as_stored(self, kv: Tensor) -> Tensor:
        """What `read` would give of tokens just written. kv: [T, 2 K D]; returns [T, 2, K, D]."""

    def raw(self, blocks: Sequence[int]) -> Tensor:
        """A copy of all bytes of blocks: [layers, blocks, bytes a layer and block] of uint8."""

    def put(self, block: int, raw: Tensor) -> None:
        """Overwrite a block with bytes of `raw`; on a GPU, wait until it is done. raw: [bytes]."""

    def zero(self, blocks: Sequence[int]) -> None:
        """Overwrite blocks in every layer; on a GPU, wait until it is done."""


class PagedKv:
    """Implements `KvMemory` in the model's own numbers: [layer, block, slot, 2 K D].

    A token's keys and values lie side by side, so one row copy writes a token and one row gather
    reads a block.
    """

    def __init__(
        self, shape: KvShape, *, num_blocks: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.shape = shape
        size = (shape.num_layers, num_blocks + 1, shape.block_size * shape.token_width)
        self._data = torch.zeros(size, dtype=dtype, device=device)

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self._data.device

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers."""
        return self.shape.block_bytes(self._data.dtype)

    def write(self, layer: int, slots: Tensor, kv: Tensor) -> None:
        """See `KvMemory`."""
        self._data[layer].view(-1, self.shape.token_width).index_copy_(0, slots, kv)

    def read(self, layer: int, blocks: Tensor) -> Tensor:
        """See `KvMemory`."""
        return self.as_stored(self._data[layer].index_select(0, blocks))

    def as_stored(self, kv: Tensor) -> Tensor:
        """See `KvMemory`."""
        return kv.reshape(-1, 2, self.shape.num_kv_heads, self.shape.head_dim)

    def raw(self, blocks: Sequence[int]) -> Tensor:
        """See `KvMemory`."""
        return raw_blocks(self._data, blocks)

    def put(self, block: int, raw: Tensor) -> None:
        """See `KvMemory`."""
        put_block(self._data, block, raw)

    def zero(self, blocks: Sequence[int]) -> None:
        """See `KvMemory`."""
        zero_blocks(self._data, blocks)


def zero_blocks(data: Tensor, blocks: Sequence[int]) -> None:
    """Overwrite blocks of [layer, block, ...] memory; on a GPU, wait until it is done."""
    data.index_fill_(1, torch.tensor(blocks, device=data.device), 0)
    if data.is_cuda:
        torch.cuda.synchronize(data.device)


def raw_blocks(data: Tensor, blocks: Sequence[int]) -> Tensor:
    """A copy of blocks of [layer, block, ...] memory, as bytes."""
    return data.index_select(1, torch.tensor(blocks, device=data.device)).view(torch.uint8)


def put_block(data: Tensor, block: int, raw: Tensor) -> None:
    """Overwrite a block of [layer, block, ...] memory with its bytes, a layer after the other."""
    data[:, block].view(torch.uint8).copy_(raw.view(data.shape[0], -1))
    if data.is_cuda:
        torch.cuda.synchronize(data.device)
