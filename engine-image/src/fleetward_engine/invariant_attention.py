"""Attention whose result for a token is a function of that token's own sequence alone.

Queries are taken in tiles of fixed places: position p is always the `p % tile`-th of its tile, and
its tile always sees as many blocks as lie up to its end. So whether a token comes alone in a decode
step or within a chunk of a prompt, whatever else is in the batch, one kernel of one shape computes
it. Places of a tile that are not of this step are zeros, and rows of a kernel don't mix.
Shapes in comments: as in `attention.py`; q is a tile's queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fleetward_engine.attention import first_seen, slots_of
from fleetward_engine.model_runner import StepInput
from fleetward_engine.paged_kv import KvMemory

_LARGEST_TILE = 8
"""A decode computes a whole tile for its one token, a prompt makes one call a tile."""


@dataclass(frozen=True, slots=True)
class _Tile:
    start: int  # its tokens' places in the batch
    end: int
    place: int  # of the first of them in the tile
    table: Tensor  # [blocks] from the first that the tile sees to the last
    mask: Tensor  # [q, S]


class InvariantAttention:
    """Implements `Attention`; made once a step."""

    def __init__(self, kv: KvMemory, step: StepInput, *, dtype: torch.dtype) -> None:
        self._kv = kv
        self._dtype = dtype
        self._block_size = kv.shape.block_size
        # A divisor of the block size: then all of a tile lies in one block.
        self._tile = math.gcd(_LARGEST_TILE, self._block_size)
        slots = slots_of(step, self._block_size)
        self._slots = torch.tensor(slots, dtype=torch.int64, device=kv.device)
        self._tiles = {window: list(self._plan(step, window)) for window in set(kv.shape.windows)}

    def __call__(self, layer: int, qkv: Tensor) -> Tensor:
        """See `Attention`."""
        shape = self._kv.shape
        width = shape.num_heads * shape.head_dim
        self._kv.write(layer, self._slots, qkv[:, width:])
        out = qkv.new_empty(qkv.shape[0], width)
        for tile in self._tiles[shape.windows[layer]]:
            out[tile.start : tile.end] = self._attend(layer, qkv, tile)
        return out

    def _attend(self, layer: int, qkv: Tensor, tile: _Tile) -> Tensor:
        shape = self._kv.shape
        width = shape.num_heads * shape.head_dim
        places = slice(tile.place, tile.place + tile.end - tile.start)
        q = qkv.new_zeros(self._tile, width)
        q[places] = qkv[tile.start : tile.end, :width]
        q = q.view(self._tile, shape.num_kv_heads, -1, shape.head_dim).permute(1, 2, 0, 3)
        kv = self._kv.read(layer, tile.table)  # [S, 2, K, D]
        group = (-1, q.shape[1], -1, -1)
        k, v = (kv[:, part].transpose(0, 1).unsqueeze(1).expand(group) for part in (0, 1))
        out = scaled_dot_product_attention(q.contiguous(), k, v, attn_mask=tile.mask)
        return out.permute(2, 0, 1, 3).reshape(self._tile, width)[places]

    def _plan(self, step: StepInput, window: int | None) -> Iterator[_Tile]:
        for row, table in enumerate(step.block_tables):
            start, end = step.row_offsets[row], step.row_offsets[row + 1]
            while start < end:
                first = step.positions[start]
                place = first % self._tile
                stop = min(end, start + self._tile - place)
                span = (start, stop, place)
                yield self._plan_tile(span, first - place, table, window)
                start = stop

    def _plan_tile(
        self,
        span: tuple[int, int, int],
        origin: int,
        table: Sequence[int],
        window: int | None,
    ) -> _Tile:
        """Plan the tile whose positions begin at `origin`."""
        size, device = self._block_size, self._kv.device
        skipped = first_seen(origin, window) // size
        blocks = table[skipped : origin // size + 1]
        keys = torch.arange(len(blocks) * size, device=device)[None, :] + skipped * size
        queries = torch.arange(origin, origin + self._tile, device=device)[:, None]
        allowed = keys <= queries
        if window is not None:
            allowed &= keys > queries - window
        zeros = torch.zeros(allowed.shape, dtype=self._dtype, device=device)
        mask = zeros.masked_fill_(~allowed, float("-inf"))
        blocks_read = torch.tensor(blocks, dtype=torch.int64, device=device)
        return _Tile(*span, blocks_read, mask)
