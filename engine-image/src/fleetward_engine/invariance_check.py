"""Whether this device multiplies so that a row's result depends on the row alone.

`rowwise.in_tiles` rests on it. No library promises it, so it is tried once at start, on the model's
own matrices: a mode that can't be kept is refused, not hoped for.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fleetward_engine.errors import ConfigInvalid
from fleetward_engine.models.linear import Linear
from fleetward_engine.models.llama import Llama
from fleetward_engine.models.rowwise import TILE_ROWS


@torch.inference_mode()
def check_invariance(model: Llama) -> None:
    """Try one of each kind of the model's products.

    Raises:
        ConfigInvalid: names the product whose rows come out differently by place or neighbours.
    """
    for name, product in model.products.items():
        if not _is_invariant(product, model):
            raise ConfigInvalid(
                f"batch_invariant can't be kept here: on this device {name} rounds a row "
                "differently by its place in a tile. Run without it, or with another dtype"
            )


def _is_invariant(product: Linear, model: Llama) -> bool:
    numbers = torch.Generator().manual_seed(0)
    size = (TILE_ROWS, product.num_inputs)
    rows = torch.randn(size, generator=numbers).to(model.dtype).to(model.device)
    alike = product(rows[:1].expand(size).contiguous())
    mixed = product(rows)
    turned = product(rows.flip(0).contiguous()).flip(0)
    return (
        _same(alike, alike[:1].expand_as(alike))
        and _same(mixed, turned)
        and _same(mixed[:1], alike[:1])
    )


def _same(first: Tensor, second: Tensor) -> bool:
    return bool(torch.equal(first, second))
