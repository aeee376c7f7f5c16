"""A weight matrix in the layout its device multiplies fastest."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

_PACKED_FOR_ROWS = 8
"""oneDNN picks a weight layout for a row count; this one is near the best from 1 to 512 rows."""


class Linear:
    """y = x Wᵀ + b. x: [rows, in], W: [out, in], b: [out] or None, y: [rows, out].

    bfloat16 weights on a CPU with oneDNN are laid out once: the ordinary call would lay them out
    anew at each call, which costs as much as the product itself in a decode step.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.num_inputs = weight.shape[1]
        self._packed = _can_pack(weight)
        self._weight = (
            torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_FOR_ROWS)  # noqa: SLF001
            if self._packed
            else weight
        )
        self._bias = bias
        self.num_outputs = weight.shape[0]
        self.nbytes = weight.nbytes + (0 if bias is None else bias.nbytes)

    def is_a_view_of(self, weight: Tensor) -> bool:
        """Whether it multiplies by that very memory, as a head tied to the embedding may."""
        return not self._packed and self._weight.data_ptr() == weight.data_ptr()

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply; see the class for shapes."""
        if not self._packed:
            return linear(x, self._weight, self._bias)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(  # noqa: SLF001
            x, self._weight, self._bias, "none", [], ""
        )
        return y


def _can_pack(weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.bfloat16
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()  # noqa: SLF001
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
