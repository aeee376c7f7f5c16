"""The llama family: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

After "LLaMA: Open and Efficient Foundation Language Models" (2302.13971), with grouped-query
attention (2305.13245) and rotary embeddings (2104.09864) in the half-rotated form. Mistral and
Qwen2 are of it: they differ in biases and constants alone.
Shapes in comments: T tokens of a step, H query heads, K key-value heads, D head dim, E hidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from fleetward_engine.attention import Attention
from fleetward_engine.models.linear import Linear
from fleetward_engine.models.rope import RopeScaling, rope_frequencies, rotation
from fleetward_engine.models.rowwise import RowWise, at_once


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    """Sizes and constants of one model.

    `rope_scaling` None leaves the frequencies as they are. `windows` says for each layer how many
    positions it attends to, the token's own among them; None there, or no entry at all: all.
    """

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_model_len: int
    rope_theta: float
    rms_norm_eps: float
    rope_scaling: RopeScaling | None = None
    windows: tuple[int | None, ...] = ()


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
    """A model ready to run."""

    def __init__(
        self,
        config: LlamaConfig,
        *,
        embedding: Tensor,
        layers: list[LlamaLayer],
        final_norm: Tensor,
        lm_head: Linear,
    ) -> None:
        self.config = config
        self._embedding = embedding  # [vocab, E]
        self._layers = layers
        self._final_norm = final_norm  # [E]
        self._lm_head = lm_head
        frequencies = rope_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
        self._frequencies = frequencies.to(embedding.device)  # [D / 2]

    @property
    def dtype(self) -> torch.dtype:
        """Of weights, activations and KV."""
        return self._embedding.dtype

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self._embedding.device

    @property
    def ffn_size(self) -> int:
        """Width of the feed-forward layers."""
        return self._layers[0].gate_up.num_outputs // 2

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights; a head that is the embedding itself takes none."""
        size = self._embedding.nbytes + self._final_norm.nbytes
        if not self._lm_head.is_a_view_of(self._embedding):
            size += self._lm_head.nbytes
        for layer in self._layers:
            size += layer.attention_norm.nbytes + layer.ffn_norm.nbytes
            size += layer.qkv.nbytes + layer.output.nbytes
            size += layer.gate_up.nbytes + layer.down.nbytes
        return size

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        attention: Attention,
        *,
        rowwise: RowWise = at_once,
    ) -> Tensor:
        """Hidden states after the last block, not yet normalised.

        `token_ids` and `positions` are [T], of all rows one after the other; `attention` knows
        this step's rows and their block tables. Returns [T, E].
        """
        cos, sin = rotation(self._frequencies, positions, self.dtype)  # [T, 1, D]
        x = self._embedding[token_ids]  # [T, E]
        for index, layer in enumerate(self._layers):
            qkv = rowwise(partial(self._project, layer), x, cos, sin)
            x = rowwise(partial(self._finish, layer), x, attention(index, qkv))
        return x

    def logits(self, hidden: Tensor, *, rowwise: RowWise = at_once) -> Tensor:
        """Scores of every next token. hidden: [rows, E] of `forward`; returns [rows, vocab]."""
        return rowwise(lambda x: self._lm_head(self._norm(x, self._final_norm)), hidden)

    @property
    def products(self) -> dict[str, Linear]:
        """One of each kind of product: the first block's, and the one that ends in logits."""
        first = self._layers[0]
        return {
            "qkv": first.qkv,
            "output": first.output,
            "gate_up": first.gate_up,
            "down": first.down,
            "lm_head": self._lm_head,
        }

    def _project(self, layer: LlamaLayer, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Queries and keys, turned, and values. x: [T, E]; returns [T, (H + 2K) D]."""
        qkv = layer.qkv(self._norm(x, layer.attention_norm))
        self._rotate(qkv, cos, sin)
        return qkv

    def _finish(self, layer: LlamaLayer, x: Tensor, attended: Tensor) -> Tensor:
        """The rest of a block. x: [T, E], attended: [T, H D]; returns [T, E]."""
        x = x + layer.output(attended)
        gate, up = layer.gate_up(self._norm(x, layer.ffn_norm)).chunk(2, dim=-1)  # [T, F]
        return x + layer.down(silu(gate).mul_(up))

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
