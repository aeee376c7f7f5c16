"""The llama family: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

After "LLaMA: Open and Efficient Foundation Language Models" (2302.13971), with grouped-query
attention (2305.13245) and rotary embeddings (2104.09864) in the half-rotated form.
Shapes in comments: T tokens of a step, H query heads, K key-value heads, D head dim, E hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from fleetward_engine.attention import PagedAttention
from fleetward_engine.models.linear import Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    """Sizes and constants of one model."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_model_len: int
    rope_theta: float
    rms_norm_eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaLayer:
    """Weights of one block. qkv: [(H + 2K) D, E], gate_up: [2 F, E]: one product each."""

    attention_norm: Tensor  # [E]
    qkv: Linear
    output: Linear
    ffn_norm: Tensor  # [E]
    gate_up: Linear
    down: Linear


class Llama:
    """A model ready to run; `rope_factors` [D / 2] divide the frequencies, where it has them."""

    def __init__(
        self,
        config: LlamaConfig,
        *,
        embedding: Tensor,
        layers: list[LlamaLayer],
        final_norm: Tensor,
        lm_head: Linear,
        rope_factors: Tensor | None = None,
    ) -> None:
        self.config = config
        self._embedding = embedding  # [vocab, E]
        self._layers = layers
        self._final_norm = final_norm  # [E]
        self._lm_head = lm_head
        cos, sin = rope_tables(config, rope_factors)
        self._cos = cos.to(embedding)  # [max_model_len, 1, D]
        self._sin = sin.to(embedding)

    @property
    def dtype(self) -> torch.dtype:
        """Of weights, activations and KV."""
        return self._embedding.dtype

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self._embedding.device

    def forward(self, token_ids: Tensor, positions: Tensor, attention: PagedAttention) -> Tensor:
        """Hidden states after the last block, not yet normalised.

        `token_ids` and `positions` are [T], of all rows one after the other; `attention` knows
        this step's rows and their block tables. Returns [T, E].
        """
        cos, sin = self._cos[positions], self._sin[positions]  # [T, 1, D]
        x = self._embedding[token_ids]  # [T, E]
        for index, layer in enumerate(self._layers):
            qkv = layer.qkv(self._norm(x, layer.attention_norm))  # [T, (H + 2K) D]
            self._rotate(qkv, cos, sin)
            x = x + layer.output(attention(index, qkv))
            gate, up = layer.gate_up(self._norm(x, layer.ffn_norm)).chunk(2, dim=-1)  # [T, F]
            x = x + layer.down(silu(gate).mul_(up))
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of every next token. hidden: [rows, E] of `forward`; returns [rows, vocab]."""
        return self._lm_head(self._norm(hidden, self._final_norm))

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, (x.shape[-1],), weight, self.config.rms_norm_eps)

    def _rotate(self, qkv: Tensor, cos: Tensor, sin: Tensor) -> None:
        """Turn queries and keys by their positions, in place; `sin` carries the signs."""
        config = self.config
        heads = qkv.view(qkv.shape[0], -1, config.head_dim)  # [T, H + 2K, D]
        qk = heads[:, : config.num_heads + config.num_kv_heads]
        swapped = qk.roll(config.head_dim // 2, dims=-1)  # halves of D exchanged
        # Each product rounds by itself, as in the code these models were trained with.
        qk.mul_(cos).add_(swapped.mul_(sin))


def rope_tables(config: LlamaConfig, factors: Tensor | None) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines of every position, [max_model_len, 1, D] in float32.

    Angles are float32 products, as in the code these models were trained with: exact angles would
    differ from theirs at large positions. The first half of D carries -sin, the second +sin.
    """
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents  # [D / 2]
    if factors is not None:
        frequencies = frequencies / factors.float()
    angles = torch.outer(torch.arange(config.max_model_len, dtype=torch.float32), frequencies)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), -1).unsqueeze(1), torch.cat((-sin, sin), -1).unsqueeze(1)
