"""Which tensors a llama checkpoint must hold, by name and shape."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fleetward_engine.hf.llama_config import LlamaCheckpoint

Shapes = Mapping[str, tuple[int, ...]]

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
LM_HEAD = "lm_head.weight"
_DERIVED = re.compile(r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")


def layer_prefix(index: int) -> str:
    """Where the names of a layer's tensors begin."""
    return f"model.layers.{index}"


def expected_tensors(spec: LlamaCheckpoint) -> Shapes:
    """Every tensor that is read."""
    config = spec.config
    hidden, vocabulary = config.hidden_size, config.vocab_size
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (vocabulary, hidden), FINAL_NORM: (hidden,)}
    if not spec.tied:
        shapes[LM_HEAD] = (vocabulary, hidden)
    for index in range(config.num_layers):
        for name, shape in _layer(spec).items():
            shapes[f"{layer_prefix(index)}.{name}"] = shape
    return shapes


def may_be_skipped(name: str, spec: LlamaCheckpoint) -> bool:
    """Whether a tensor may lie there unread: it repeats what the config or another tensor says."""
    return _DERIVED.fullmatch(name) is not None or (spec.tied and name == LM_HEAD)


def _layer(spec: LlamaCheckpoint) -> Shapes:
    config = spec.config
    hidden, ffn = config.hidden_size, spec.ffn_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    products = {
        "self_attn.q_proj": (queries, hidden, spec.qkv_bias),
        "self_attn.k_proj": (keys, hidden, spec.qkv_bias),
        "self_attn.v_proj": (keys, hidden, spec.qkv_bias),
        "self_attn.o_proj": (hidden, queries, spec.output_bias),
        "mlp.gate_proj": (ffn, hidden, spec.mlp_bias),
        "mlp.up_proj": (ffn, hidden, spec.mlp_bias),
        "mlp.down_proj": (hidden, ffn, spec.mlp_bias),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    for name, (rows, columns, biased) in products.items():
        shapes[f"{name}.weight"] = (rows, columns)
        if biased:
            shapes[f"{name}.bias"] = (rows,)
    return shapes
