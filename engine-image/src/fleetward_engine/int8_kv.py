"""KV memory of eight bits a number: a scale for each token and head, kept in the token's own row.

So a block is whole wherever it goes, and overwriting its bytes overwrites its scales. Absolute
maxima per token and head lose far less than one scale a tensor: keys have channels that stand out.
Shapes in comments: T tokens, S positions, K key-value heads, D head dim.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fleetward_engine.paged_kv import KvShape, put_block, raw_blocks, zero_blocks

_LARGEST = 127.0
_SMALLEST_SCALE = torch.finfo(torch.float32).tiny


class Int8Kv:
    """Implements `KvMemory`: [layer, block, slot, 2 K D numbers and 2 K float32 scales].

    What attention reads is `number * scale` in `dtype`, also of tokens that are in the making: so
    an answer doesn't depend on how its prompt was cut into steps, or on what was cached.
    """

    def __init__(
        self, shape: KvShape, *, num_blocks: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.shape = shape
        self._dtype = dtype
        self._row = shape.token_bytes(torch.int8)
        size = (shape.num_layers, num_blocks + 1, shape.block_size * self._row)
        self._data = torch.zeros(size, dtype=torch.int8, device=device)

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self._data.device

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers."""
        return self.shape.block_bytes(torch.int8)

    def write(self, layer: int, slots: Tensor, kv: Tensor) -> None:
        """See `KvMemory`."""
        self._data[layer].view(-1, self._row).index_copy_(0, slots, self._pack(kv))

    def read(self, layer: int, blocks: Tensor) -> Tensor:
        """See `KvMemory`."""
        return self._unpack(self._data[layer].index_select(0, blocks).view(-1, self._row))

    def as_stored(self, kv: Tensor) -> Tensor:
        """See `KvMemory`."""
        return self._unpack(self._pack(kv))

    def raw(self, blocks: Sequence[int]) -> Tensor:
        """See `KvMemory`."""
        return raw_blocks(self._data, blocks)

    def put(self, block: int, raw: Tensor) -> None:
        """See `KvMemory`."""
        put_block(self._data, block, raw)

    def zero(self, blocks: Sequence[int]) -> None:
        """See `KvMemory`."""
        zero_blocks(self._data, blocks)

    def _pack(self, kv: Tensor) -> Tensor:
        """[T, 2 K D] to rows of bytes, [T, row]. NaN and infinity stay in the scale."""
        heads = kv.reshape(kv.shape[0], -1, self.shape.head_dim).float()  # [T, 2 K, D]
        scales = heads.abs().amax(-1, keepdim=True) / _LARGEST  # [T, 2 K, 1]
        numbers = (heads / scales.clamp_min(_SMALLEST_SCALE)).round_().to(torch.int8)
        rows = (numbers.flatten(1), scales.flatten(1).view(torch.int8))
        return torch.cat(rows, dim=1)

    def _unpack(self, rows: Tensor) -> Tensor:
        """[S, row] to [S, 2, K, D]."""
        shape, width = self.shape, self.shape.token_width
        numbers = rows[:, :width].reshape(-1, 2, shape.num_kv_heads, shape.head_dim)
        scales = rows[:, width:].view(torch.float32).view(-1, 2, shape.num_kv_heads, 1)
        return (numbers * scales).to(self._dtype)
