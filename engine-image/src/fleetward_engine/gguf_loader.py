"""A llama model from a GGUF file: names, sizes, and the layout that GGUF gives queries and keys."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from fleetward_engine.errors import ModelUnsupported
from fleetward_engine.gguf_file import GgufFile
from fleetward_engine.models.linear import Linear
from fleetward_engine.models.llama import Llama, LlamaConfig, LlamaLayer
from fleetward_engine.models.rope import DividedFrequencies, RopeScaling

_KNOWN_TENSORS = re.compile(
    r"(token_embd|output|output_norm|rope_freqs"
    r"|blk\.\d+\.(attn_(norm|q|k|v|output)|ffn_(norm|gate|up|down)))\.weight"
)


@dataclass(frozen=True, slots=True)
class _Weights:
    file: GgufFile
    dtype: torch.dtype
    device: torch.device

    def get(self, name: str) -> Tensor:
        # The copy leaves the read-only mapping of the file behind.
        values = torch.from_numpy(self.file.tensor(name).copy())
        return values.to(device=self.device, dtype=self.dtype)

    def rotary(self, name: str, num_heads: int) -> Tensor:
        """Queries or keys in the half-rotated order; GGUF files hold them interleaved."""
        weight = self.get(name)
        pairs = weight.view(num_heads, -1, 2, weight.shape[-1])  # [heads, D / 2, 2, E]
        return pairs.transpose(1, 2).reshape(weight.shape)


def load_llama(file: GgufFile, *, dtype: torch.dtype, device: torch.device) -> Llama:
    """Read, dequantise and place a model.

    Raises:
        ModelUnsupported: another architecture, or a feature there is no code for; names it.
    """
    config = read_config(file)
    strange = sorted(n for n in file.tensor_names if not _KNOWN_TENSORS.fullmatch(n))
    if strange:
        raise ModelUnsupported(f"no code for tensors {', '.join(strange[:5])}")
    weights = _Weights(file, dtype, device)
    embedding = weights.get("token_embd.weight")
    tied = "output.weight" not in file.tensor_names
    return Llama(
        config,
        embedding=embedding,
        layers=[_load_layer(weights, config, index) for index in range(config.num_layers)],
        final_norm=weights.get("output_norm.weight"),
        lm_head=Linear(embedding if tied else weights.get("output.weight")),
    )


def read_config(file: GgufFile) -> LlamaConfig:
    """Sizes and constants from the metadata, refusing what would change the mathematics."""
    architecture = file.text("general.architecture")
    if architecture != "llama":
        raise ModelUnsupported(f"architecture {architecture!r} has no code here: only 'llama'")
    _refuse_features(file)
    hidden = file.integer("llama.embedding_length")
    heads = file.integer("llama.attention.head_count")
    config = LlamaConfig(
        num_layers=file.integer("llama.block_count"),
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=file.integer("llama.attention.head_count_kv", heads),
        head_dim=file.integer("llama.attention.key_length", hidden // heads),
        vocab_size=file.shape("token_embd.weight")[0],
        max_model_len=file.integer("llama.context_length"),
        rope_theta=file.number("llama.rope.freq_base", 10_000.0),
        rms_norm_eps=file.number("llama.attention.layer_norm_rms_epsilon"),
        rope_scaling=_rope_scaling(file),
    )
    rotated = file.integer("llama.rope.dimension_count", config.head_dim)
    if rotated != config.head_dim:
        raise ModelUnsupported(f"rotary positions over {rotated} of {config.head_dim} dimensions")
    return config


def _rope_scaling(file: GgufFile) -> RopeScaling | None:
    name = "rope_freqs.weight"
    if name not in file.tensor_names:
        return None
    return DividedFrequencies(tuple(float(divisor) for divisor in file.tensor(name)))


def _refuse_features(file: GgufFile) -> None:
    scaling = file.text("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise ModelUnsupported(f"rope scaling {scaling!r} has no code here")
    for key in ("llama.expert_count", "llama.attention.sliding_window"):
        if file.integer(key, 0):
            raise ModelUnsupported(f"metadata {key!r} asks for a feature that has no code here")


def _load_layer(weights: _Weights, config: LlamaConfig, index: int) -> LlamaLayer:
    prefix = f"blk.{index}"
    qkv = (
        weights.rotary(f"{prefix}.attn_q.weight", config.num_heads),
        weights.rotary(f"{prefix}.attn_k.weight", config.num_kv_heads),
        weights.get(f"{prefix}.attn_v.weight"),
    )
    gate_up = (weights.get(f"{prefix}.ffn_{name}.weight") for name in ("gate", "up"))
    return LlamaLayer(
        attention_norm=weights.get(f"{prefix}.attn_norm.weight"),
        qkv=Linear(torch.cat(qkv)),
        output=Linear(weights.get(f"{prefix}.attn_output.weight")),
        ffn_norm=weights.get(f"{prefix}.ffn_norm.weight"),
        gate_up=Linear(torch.cat(tuple(gate_up))),
        down=Linear(weights.get(f"{prefix}.ffn_down.weight")),
    )
