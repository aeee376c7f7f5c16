"""A model of the llama family from a checkpoint's folder."""

from __future__ import annotations

from functools import partial

import torch

from fleetward_engine.hf.checkpoint import Checkpoint
from fleetward_engine.hf.llama_config import LlamaCheckpoint
from fleetward_engine.hf.safetensors_weights import SafetensorsWeights
from fleetward_engine.hf.tensors import (
    EMBEDDING,
    FINAL_NORM,
    LM_HEAD,
    expected_tensors,
    layer_prefix,
    may_be_skipped,
)
from fleetward_engine.models.linear import Linear
from fleetward_engine.models.llama import Llama, LlamaLayer


def load_checkpoint(
    checkpoint: Checkpoint, spec: LlamaCheckpoint, *, dtype: torch.dtype, device: torch.device
) -> Llama:
    """Read, convert and place the model that `read_llama_config` found in the checkpoint's config.

    Raises:
        ModelUnavailable: a file is damaged, or files don't belong together.
        ModelUnsupported: tensors that the config doesn't ask for, or that are missing; names them.
    """
    with SafetensorsWeights(
        checkpoint,
        expected_tensors(spec),
        skippable=partial(may_be_skipped, spec=spec),
        dtype=dtype,
        device=device,
    ) as weights:
        embedding = weights.read(EMBEDDING)
        return Llama(
            spec.config,
            embedding=embedding,
            layers=[_load_layer(weights, spec, index) for index in range(spec.config.num_layers)],
            final_norm=weights.read(FINAL_NORM),
            lm_head=Linear(embedding if spec.tied else weights.read(LM_HEAD)),
        )


def _load_layer(weights: SafetensorsWeights, spec: LlamaCheckpoint, index: int) -> LlamaLayer:
    prefix = layer_prefix(index)

    def product(*names: str, biased: bool) -> Linear:
        paths = [f"{prefix}.{name}" for name in names]
        weight = weights.stack(*(f"{path}.weight" for path in paths))
        bias = weights.stack(*(f"{path}.bias" for path in paths)) if biased else None
        return Linear(weight, bias)

    heads = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    return LlamaLayer(
        attention_norm=weights.read(f"{prefix}.input_layernorm.weight"),
        qkv=product(*heads, biased=spec.qkv_bias),
        output=product("self_attn.o_proj", biased=spec.output_bias),
        ffn_norm=weights.read(f"{prefix}.post_attention_layernorm.weight"),
        gate_up=product("mlp.gate_proj", "mlp.up_proj", biased=spec.mlp_bias),
        down=product("mlp.down_proj", biased=spec.mlp_bias),
    )
