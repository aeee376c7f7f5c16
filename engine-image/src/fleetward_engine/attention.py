"""Attention over paged KV: one step's ragged rows against their block tables.

Shapes in comments: T tokens, B decode rows, n tokens of a prefill row, S positions seen,
K key-value heads, G query heads per key-value head, D head dim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fleetward_engine.model_runner import StepInput


@dataclass(frozen=True, slots=True, kw_only=True)
class KvShape:
    """What one token's KV looks like in each layer."""

    num_layers: int
    num_kv_heads: int
    num_heads: int
    head_dim: int
    block_size: int

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

    def blocks(self, layer: int) -> Tensor:
        """One layer as [block, slot * 2 K D]."""
        return self._data[layer]

    def slots(self, layer: int) -> Tensor:
        """One layer as [block * slot, 2 K D]."""
        return self._data[layer].view(-1, self.shape.token_width)

    def zero(self, blocks: Sequence[int]) -> None:
        """Overwrite blocks in every layer; on a GPU, wait until it is done."""
        self._data.index_fill_(1, torch.tensor(blocks, device=self._data.device), 0)
        if self._data.is_cuda:
            torch.cuda.synchronize(self._data.device)


@dataclass(frozen=True, slots=True)
class _Prefill:
    start: int  # first token's place in the batch
    end: int
    seen: int  # S
    table: Tensor  # [blocks]
    mask: Tensor | None  # [n, S padded to blocks]; None: nothing cached before, plainly causal


@dataclass(frozen=True, slots=True)
class _Decode:
    tokens: Tensor | None  # [B] places in the batch; None: the batch is these rows
    rows: int  # B
    table: Tensor  # [B * blocks]
    mask: Tensor  # [B, 1, 1, S]


class PagedAttention:
    """One step's plan: where to write each token's KV and what each row reads. Made once a step."""

    def __init__(self, kv: PagedKv, step: StepInput, *, dtype: torch.dtype) -> None:
        self._kv = kv
        self._dtype = dtype
        self._device = kv.blocks(0).device
        self._size = kv.shape.block_size
        self._slots = self._tensor(_slots(step, self._size))
        starts, ends = step.row_offsets[:-1], step.row_offsets[1:]
        rows = list(zip(starts, ends, step.block_tables, strict=True))
        self._prefills = [
            self._plan_prefill(start, end, step.positions[start], table)
            for start, end, table in rows
            if end - start > 1
        ]
        decodes = [(start, table) for start, end, table in rows if end - start == 1]
        self._decode = self._plan_decode(decodes, step) if decodes else None

    def __call__(self, layer: int, qkv: Tensor) -> Tensor:
        """Write the step's keys and values, then attend.

        `qkv` is [T, (G K + 2 K) D]: rotated queries and keys, then values; returns [T, G K D].
        """
        shape = self._kv.shape
        width = shape.num_heads * shape.head_dim
        self._kv.slots(layer).index_copy_(0, self._slots, qkv[:, width:])
        if self._decode is not None and self._decode.tokens is None:
            return self._run_decode(layer, qkv[:, :width], self._decode)
        out = qkv.new_empty(qkv.shape[0], width)
        for prefill in self._prefills:
            out[prefill.start : prefill.end] = self._run_prefill(layer, qkv, prefill)
        if self._decode is not None and self._decode.tokens is not None:
            tokens = self._decode.tokens
            out[tokens] = self._run_decode(layer, qkv[tokens, :width], self._decode)
        return out

    def _run_decode(self, layer: int, q: Tensor, plan: _Decode) -> Tensor:
        shape = self._kv.shape
        pages = self._kv.blocks(layer).index_select(0, plan.table)
        kv = pages.view(plan.rows, -1, 2, shape.num_kv_heads, shape.head_dim)  # [B, S, 2, K, D]
        # The query heads of one key-value head act as positions of one head: no repeated KV.
        q = q.reshape(plan.rows, shape.num_kv_heads, -1, shape.head_dim)  # [B, K, G, D]
        k, v = kv[:, :, 0].transpose(1, 2), kv[:, :, 1].transpose(1, 2)  # [B, K, S, D]
        out = scaled_dot_product_attention(q, k, v, attn_mask=plan.mask)
        return out.reshape(plan.rows, -1)

    def _run_prefill(self, layer: int, qkv: Tensor, plan: _Prefill) -> Tensor:
        shape = self._kv.shape
        heads = qkv[plan.start : plan.end].view(plan.end - plan.start, -1, shape.head_dim)
        q = heads[:, : shape.num_heads].reshape(  # [n, K, G, D]
            heads.shape[0], shape.num_kv_heads, -1, shape.head_dim
        )
        if plan.mask is None:
            kv = heads[:, shape.num_heads :]  # S = n
        else:
            kv = self._kv.blocks(layer).index_select(0, plan.table)
        kv = kv.reshape(-1, 2, shape.num_kv_heads, shape.head_dim)  # [S, 2, K, D]
        k, v = (kv[:, part].transpose(0, 1).unsqueeze(1) for part in (0, 1))  # [K, 1, S, D]
        group = (-1, q.shape[2], -1, -1)
        out = scaled_dot_product_attention(
            q.permute(1, 2, 0, 3),  # [K, G, n, D]
            k.expand(group),
            v.expand(group),
            attn_mask=plan.mask,
            is_causal=plan.mask is None,
        )
        return out.permute(2, 0, 1, 3).reshape(plan.end - plan.start, -1)

    def _plan_prefill(self, start: int, end: int, first: int, table: Sequence[int]) -> _Prefill:
        seen = first + end - start
        blocks = table[: -(-seen // self._size)]
        mask = None
        if first > 0:
            keys = torch.arange(len(blocks) * self._size, device=self._device)
            queries = torch.arange(first, seen, device=self._device)
            mask = self._mask(keys[None, :] <= queries[:, None])
        return _Prefill(start, end, seen, self._tensor(blocks), mask)

    def _plan_decode(
        self, decodes: Sequence[tuple[int, Sequence[int]]], step: StepInput
    ) -> _Decode:
        lengths = [step.positions[start] + 1 for start, _ in decodes]
        width = -(-max(lengths) // self._size)
        padded = [[*table[:width], *[0] * (width - len(table))] for _, table in decodes]
        keys = torch.arange(width * self._size, device=self._device)
        mask = self._mask(keys[None, :] < self._tensor(lengths)[:, None])[:, None, None, :]
        alone = len(decodes) == len(step.token_ids)
        tokens = None if alone else self._tensor([start for start, _ in decodes])
        return _Decode(tokens, len(decodes), self._tensor(padded).view(-1), mask)

    def _mask(self, allowed: Tensor) -> Tensor:
        zeros = torch.zeros(allowed.shape, dtype=self._dtype, device=self._device)
        return zeros.masked_fill_(~allowed, float("-inf"))

    def _tensor(self, values: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)


def _slots(step: StepInput, size: int) -> list[int]:
    """Where each token's KV goes: block * slots of a block + slot."""
    slots: list[int] = []
    for row, table in enumerate(step.block_tables):
        positions = step.positions[step.row_offsets[row] : step.row_offsets[row + 1]]
        slots += [table[position // size] * size + position % size for position in positions]
    return slots
