"""Rotary positions: the frequencies of a model, and the turns made of them.

After "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2104.09864); scalings after
"Extending Context Window of Large Language Models via Positional Interpolation" (2306.15595) and
"The Llama 3 Herd of Models" (2407.21783). Arithmetic is float32, as in the code that these models
were trained with: exact angles would differ from theirs at large positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Positions are divided by `factor`."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Slow frequencies are divided by `factor`, fast ones kept, those between interpolated.

    A frequency is slow that turns less than `low_freq_factor` times over the `original_max_len`
    positions of the first training, and fast that turns more than `high_freq_factor` times.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_len: int


@dataclass(frozen=True, slots=True)
class DividedFrequencies:
    """Each frequency has a divisor of its own, as GGUF files write any scaling."""

    divisors: tuple[float, ...]


RopeScaling = LinearScaling | Llama3Scaling | DividedFrequencies


def rope_frequencies(head_dim: int, theta: float, scaling: RopeScaling | None) -> Tensor:
    """Radians a position of each pair of dimensions: [head_dim / 2] in float32."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    plain = 1.0 / theta**exponents
    match scaling:
        case None:
            return plain
        case LinearScaling(factor):
            return plain / factor
        case DividedFrequencies(divisors):
            return plain / torch.tensor(divisors, dtype=torch.float32)
        case Llama3Scaling():
            return _llama3(plain, scaling)


def rope_layout(theta: float, scaling: RopeScaling | None) -> str:
    """The rotary constants as a part of the KV layout.

    Divisors of single frequencies are fixed by the model's digest, which stands beside the layout.
    """
    match scaling:
        case None:
            return repr(theta)
        case LinearScaling(factor):
            return f"{theta!r},linear={factor!r}"
        case DividedFrequencies():
            return f"{theta!r},divided"
        case Llama3Scaling(factor, low, high, length):
            return f"{theta!r},llama3={factor!r},{low!r},{high!r},{length}"


def rotation(frequencies: Tensor, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines of these positions, [T, 1, D]; rounded to `dtype` at the very end.

    The first half of D carries -sin, the second +sin. A table of all positions would save little
    time, and take gigabytes where a model's context is a million tokens.
    """
    angles = torch.outer(positions.float(), frequencies)
    cos, sin = angles.cos(), angles.sin()
    cos, sin = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
    return cos.unsqueeze(1).to(dtype), sin.unsqueeze(1).to(dtype)


def _llama3(plain: Tensor, scaling: Llama3Scaling) -> Tensor:
    wavelengths = 2 * math.pi / plain  # positions of a full turn
    slow = wavelengths > scaling.original_max_len / scaling.low_freq_factor
    fast = wavelengths < scaling.original_max_len / scaling.high_freq_factor
    turns = scaling.original_max_len / wavelengths
    span = scaling.high_freq_factor - scaling.low_freq_factor
    kept = (turns - scaling.low_freq_factor) / span  # share of the plain frequency, in between
    between = (1 - kept) * plain / scaling.factor + kept * plain
    return torch.where(slow, plain / scaling.factor, torch.where(fast, plain, between))
