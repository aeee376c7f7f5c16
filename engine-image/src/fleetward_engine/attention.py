"""Attention over paged KV: one step's ragged rows against their block tables.

Shapes in comments: T tokens, B decode rows, n tokens of a prefill row, S positions seen,
K key-value heads, G query heads per key-value head, D head dim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fleetward_engine.model_runner import StepInput
from fleetward_engine.paged_kv import KvMemory

READ_AT_ONCE = {"cpu": 1 << 26, "cuda": 1 << 30}
"""Bytes of KV, padding included, that decode rows read together in a layer; a row alone may take
more. It bounds what a step needs, and on a CPU saves padding; on a GPU each more read costs a
launch of its own."""


class Attention(Protocol):
    """Writes a step's keys and values into the paged KV and attends over it."""

    def __call__(self, layer: int, qkv: Tensor) -> Tensor:
        """Write, then attend. qkv: [T, (G K + 2 K) D], rotated; returns [T, G K D]."""


@dataclass(frozen=True, slots=True)
class _Prefill:
    start: int  # first token's place in the batch
    end: int
    table: Tensor  # [blocks], from the first that any of its tokens sees
    mask: Tensor | None  # [n, S padded to blocks]; None: the row's own tokens, plainly causal


@dataclass(frozen=True, slots=True)
class _Decode:
    tokens: Tensor | None  # [B] places in the batch; None: the batch is these rows
    rows: int  # B
    table: Tensor  # [B * blocks]
    mask: Tensor  # [B, 1, 1, S]


@dataclass(frozen=True, slots=True)
class _Plan:
    prefills: list[_Prefill]
    decodes: list[_Decode]


class PagedAttention:
    """One step's plan: where to write each token's KV and what each row reads. Made once a step.

    Layers that see equally far back share their part of it.
    """

    def __init__(self, kv: KvMemory, step: StepInput, *, dtype: torch.dtype) -> None:
        self._kv = kv
        self._dtype = dtype
        self._size = kv.shape.block_size
        token_bytes = kv.shape.token_width * dtype.itemsize
        self._read_at_once = READ_AT_ONCE[kv.device.type] // (token_bytes * self._size)
        self._slots = self._tensor(slots_of(step, self._size))
        self._plans = {window: self._plan(step, window) for window in set(kv.shape.windows)}

    def __call__(self, layer: int, qkv: Tensor) -> Tensor:
        """Write the step's keys and values, then attend.

        `qkv` is [T, (G K + 2 K) D]: rotated queries and keys, then values; returns [T, G K D].
        """
        shape = self._kv.shape
        plan = self._plans[shape.windows[layer]]
        width = shape.num_heads * shape.head_dim
        self._kv.write(layer, self._slots, qkv[:, width:])
        if len(plan.decodes) == 1 and plan.decodes[0].tokens is None:
            return self._run_decode(layer, qkv[:, :width], plan.decodes[0])
        out = qkv.new_empty(qkv.shape[0], width)
        for prefill in plan.prefills:
            out[prefill.start : prefill.end] = self._run_prefill(layer, qkv, prefill)
        for decode in plan.decodes:
            out[decode.tokens] = self._run_decode(layer, qkv[decode.tokens, :width], decode)
        return out

    def _run_decode(self, layer: int, q: Tensor, plan: _Decode) -> Tensor:
        shape = self._kv.shape
        kv = self._kv.read(layer, plan.table)
        kv = kv.view(plan.rows, -1, 2, shape.num_kv_heads, shape.head_dim)  # [B, S, 2, K, D]
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
            own = heads[:, shape.num_heads :].flatten(1)
            kv = self._kv.as_stored(own)  # [S, 2, K, D], S = n
        else:
            kv = self._kv.read(layer, plan.table)
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

    def _plan(self, step: StepInput, window: int | None) -> _Plan:
        starts, ends = step.row_offsets[:-1], step.row_offsets[1:]
        rows = list(zip(starts, ends, step.block_tables, strict=True))
        prefills = [
            self._plan_prefill((start, end), step.positions[start], table, window)
            for start, end, table in rows
            if end - start > 1
        ]
        decodes = [(start, table) for start, end, table in rows if end - start == 1]
        widths = [
            step.positions[start] // self._size + 1
            - first_seen(step.positions[start], window) // self._size
            for start, _ in decodes
        ]  # fmt: skip
        groups = decode_groups(widths, most=self._read_at_once)
        return _Plan(
            prefills,
            [self._plan_decode([decodes[row] for row in rows], step, window) for rows in groups],
        )

    def _plan_prefill(
        self, span: tuple[int, int], first: int, table: Sequence[int], window: int | None
    ) -> _Prefill:
        seen = first + span[1] - span[0]  # S
        skipped = first_seen(first, window) // self._size
        blocks = table[skipped : -(-seen // self._size)]
        mask = None
        if first > 0 or (window is not None and seen > window):
            keys = torch.arange(len(blocks) * self._size, device=self._kv.device)
            keys = keys[None, :] + skipped * self._size
            queries = torch.arange(first, seen, device=self._kv.device)[:, None]
            allowed = keys <= queries
            if window is not None:
                allowed &= keys > queries - window
            mask = self._mask(allowed)
        return _Prefill(*span, self._tensor(blocks), mask)

    def _plan_decode(
        self, decodes: Sequence[tuple[int, Sequence[int]]], step: StepInput, window: int | None
    ) -> _Decode:
        last = [step.positions[start] for start, _ in decodes]
        first = [first_seen(position, window) for position in last]
        skipped = [position // self._size for position in first]
        width = max(end // self._size + 1 - gone for end, gone in zip(last, skipped, strict=True))
        tables = [
            table[gone : gone + width] for (_, table), gone in zip(decodes, skipped, strict=True)
        ]
        padded = [[*table, *[0] * (width - len(table))] for table in tables]
        keys = torch.arange(width * self._size, device=self._kv.device)[None, :]
        keys = keys + self._tensor(skipped)[:, None] * self._size
        allowed = keys <= self._tensor(last)[:, None]
        if window is not None:
            allowed &= keys >= self._tensor(first)[:, None]
        alone = len(decodes) == len(step.token_ids)
        tokens = None if alone else self._tensor([start for start, _ in decodes])
        mask = self._mask(allowed)[:, None, None, :]
        return _Decode(tokens, len(decodes), self._tensor(padded).view(-1), mask)

    def _mask(self, allowed: Tensor) -> Tensor:
        zeros = torch.zeros(allowed.shape, dtype=self._dtype, device=self._kv.device)
        return zeros.masked_fill_(~allowed, float("-inf"))

    def _tensor(self, values: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._kv.device)


def decode_groups(widths: Sequence[int], *, most: int) -> list[list[int]]:
    """Rows that are read together: all as they come, or the longest first where that is too much.

    Each reads as many blocks as its longest row has, `widths`, for every row: together at most
    `most`, but for a row alone.
    """
    if not widths:
        return []
    if len(widths) * max(widths) <= most:
        return [list(range(len(widths)))]
    groups: list[list[int]] = []
    longest = 0
    for row in sorted(range(len(widths)), key=lambda row: -widths[row]):
        if not groups or (len(groups[-1]) + 1) * longest > most:
            groups.append([])
            longest = widths[row]
        groups[-1].append(row)
    return groups


def first_seen(position: int, window: int | None) -> int:
    """The earliest position that one attends to."""
    return 0 if window is None else max(0, position + 1 - window)


def slots_of(step: StepInput, size: int) -> list[int]:
    """Where each token's KV goes: block * slots of a block + slot."""
    slots: list[int] = []
    for row, table in enumerate(step.block_tables):
        positions = step.positions[step.row_offsets[row] : step.row_offsets[row + 1]]
        slots += [table[position // size] * size + position % size for position in positions]
    return slots
