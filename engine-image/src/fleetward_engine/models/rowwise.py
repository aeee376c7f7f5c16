"""How a model's row-wise work is cut: in one go, or so that no row's result knows its neighbours.

A product of matrices is computed by a kernel that is chosen by the number of its rows, and kernels
add in different orders. In tiles of one size there is one kernel, and each of its rows is the same
sum over its own numbers: what a row becomes is then a function of the row alone (the idea of
"batch-invariant" kernels; He et al., "Defeating Nondeterminism in LLM Inference", 2025).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

TILE_ROWS = 16
"""Rows a tile. More cost a lone decode more, fewer cost a long prompt more."""


class RowWise(Protocol):
    """Runs a function of rows, whose rows don't look at each other."""

    def __call__(self, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """`function(*inputs)`; all inputs, and what it returns, have one row a token."""


def at_once(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """As fast as it goes: how a row is rounded may depend on how many there are."""
    return function(*inputs)


def in_tiles(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """In tiles of `TILE_ROWS` rows, the last one filled up with zeros."""
    rows = inputs[0].shape[0]
    tiles = [
        function(*(_tile(each, start) for each in inputs)) for start in range(0, rows, TILE_ROWS)
    ]
    return torch.cat(tiles)[:rows] if len(tiles) > 1 else tiles[0][:rows]


def _tile(rows: Tensor, start: int) -> Tensor:
    part = rows[start : start + TILE_ROWS]
    if part.shape[0] == TILE_ROWS:
        # A copy where it isn't whole: some kernels look at where their rows lie.
        return part.contiguous()
    whole = part.new_zeros(TILE_ROWS, *part.shape[1:])
    whole[: part.shape[0]] = part
    return whole
