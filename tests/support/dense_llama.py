"""The llama family as plainly as it can be written: whole sequences, no cache, no batch.

A reference for small float64 models. Frequencies are float32, as the models were trained with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tests.support.checkpoints import Config, Weights


def dense_logits(
    config: Config, weights: Weights, tokens: list[int], *, windows: Sequence[int | None] = ()
) -> Tensor:
    """Scores of every next token at every position: [tokens, vocab].

    A layer sees the last `windows[layer]` positions, its own among them; all where that is None.
    """
    sizes = {name: value for name, value in config.items() if isinstance(value, int)}
    x = weights["model.embed_tokens.weight"][tokens]
    for index in range(sizes["num_hidden_layers"]):
        prefix = f"model.layers.{index}"
        h = _norm(x, weights[f"{prefix}.input_layernorm.weight"], config)
        window = (windows[index] if windows else None) or len(tokens)
        x = x + _attention(h, config, weights, prefix=f"{prefix}.self_attn", window=window)
        h = _norm(x, weights[f"{prefix}.post_attention_layernorm.weight"], config)
        gate = _product(h, weights, f"{prefix}.mlp.gate_proj")
        up = _product(h, weights, f"{prefix}.mlp.up_proj")
        x = x + _product(gate / (1 + torch.exp(-gate)) * up, weights, f"{prefix}.mlp.down_proj")
    tied = config["tie_word_embeddings"]
    head = weights["model.embed_tokens.weight" if tied else "lm_head.weight"]
    return _norm(x, weights["model.norm.weight"], config) @ head.T


def _attention(h: Tensor, config: Config, weights: Weights, *, prefix: str, window: int) -> Tensor:
    sizes = {name: value for name, value in config.items() if isinstance(value, int)}
    length, dim = h.shape[0], sizes["head_dim"]
    groups = sizes["num_attention_heads"] // sizes["num_key_value_heads"]
    q, k, v = (
        _product(h, weights, f"{prefix}.{name}_proj").view(length, -1, dim) for name in "qkv"
    )
    cos, sin = _rotation(config, length, dim)
    out = torch.zeros_like(q)
    for head in range(q.shape[1]):
        queries = _rotate(q[:, head], cos, sin)
        keys = _rotate(k[:, head // groups], cos, sin)
        scores = queries @ keys.T / math.sqrt(dim)
        for position in range(length):
            first = max(0, position + 1 - window)
            seen = scores[position, first : position + 1].softmax(-1)
            out[position, head] = seen @ v[first : position + 1, head // groups]
    return _product(out.reshape(length, -1), weights, f"{prefix}.o_proj")


def _product(x: Tensor, weights: Weights, name: str) -> Tensor:
    y = x @ weights[f"{name}.weight"].T
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def _norm(x: Tensor, weight: Tensor, config: Config) -> Tensor:
    epsilon = config["rms_norm_eps"]
    assert isinstance(epsilon, float)
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon) * weight


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _rotation(config: Config, length: int, dim: int) -> tuple[Tensor, Tensor]:
    scaling = config.get("rope_scaling")
    theta = config["rope_theta"]
    assert isinstance(theta, float)
    frequencies = torch.tensor(
        [_scaled(1.0 / theta ** torch.tensor(i / dim), scaling) for i in range(0, dim, 2)]
    )
    angles = torch.arange(length).float()[:, None] * frequencies[None, :]
    return angles.cos().double(), angles.sin().double()


def _scaled(frequency: Tensor, scaling: object) -> float:
    if not isinstance(scaling, dict):
        return float(frequency)
    if scaling["rope_type"] == "linear":
        return float(frequency / scaling["factor"])
    length, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    wavelength = 2 * math.pi / frequency
    if wavelength > length / low:
        return float(frequency / factor)
    if wavelength < length / high:
        return float(frequency)
    kept = (length / wavelength - low) / (high - low)
    return float((1 - kept) * frequency / factor + kept * frequency)
