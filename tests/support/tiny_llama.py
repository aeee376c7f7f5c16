"""Tiny random llama models: as transformers runs them, and as a GGUF file that we load."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from gguf import GGUFWriter
from transformers import LlamaConfig, LlamaForCausalLM

from fleetward_engine.config import EngineConfig
from fleetward_engine.engine import Engine
from fleetward_engine.gguf_file import GgufFile
from fleetward_engine.gguf_loader import load_llama
from fleetward_engine.tokenizer import ByteTokenizer
from fleetward_engine.torch_runner import TorchRunner
from tests.support.engine_core import Bench, Clock


@dataclass(frozen=True)
class Shape:
    """Sizes of a tiny model."""

    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 8
    ffn: int = 48
    tied: bool = True


def make_reference(shape: Shape, *, seed: int = 0) -> LlamaForCausalLM:
    """A random model in float64, as transformers computes it."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=258,
        hidden_size=shape.heads * shape.head_dim,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=256,
        tie_word_embeddings=shape.tied,
        rms_norm_eps=1e-5,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config).double().eval()


def reference_tokens(model: LlamaForCausalLM, prompt: list[int], count: int) -> list[int]:
    """Greedy tokens of one prompt alone, each from a whole forward pass without any cache."""
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            logits = model(torch.tensor([tokens]), use_cache=False).logits
            tokens.append(int(logits[0, -1].argmax()))
    return tokens[len(prompt) :]


def write_gguf(model: LlamaForCausalLM, path: Path) -> None:
    """Store a model in float64, queries and keys interleaved as GGUF files hold them."""
    config = model.config
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10_000.0)
    for name, tensor in model.state_dict().items():
        ours = _gguf_name(name)
        if ours == "output.weight" and config.tie_word_embeddings:
            continue
        values = tensor.numpy()
        if "attn_q" in ours:
            values = _interleave(values, config.num_attention_heads)
        if "attn_k" in ours:
            values = _interleave(values, config.num_key_value_heads)
        writer.add_tensor(ours, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_torch_bench(path: Path, *, num_blocks: int = 400, **settings: object) -> Bench:
    """Our engine around a GGUF file, in float64 with blocks of 4 tokens."""
    model = load_llama(GgufFile(path), dtype=torch.float64, device=torch.device("cpu"))
    runner = TorchRunner(model, num_blocks=num_blocks, block_size=4)
    base = {"model_uri": f"file://{path}", "served_model_names": ("m",), "block_size": 4}
    config = EngineConfig(**{**base, **settings})  # type: ignore[arg-type]
    clock = Clock()
    return Bench(Engine(config, runner, ByteTokenizer(), clock), runner, clock)  # type: ignore[arg-type]


def _gguf_name(name: str) -> str:
    parts = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "model.layers": "blk",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "post_attention_layernorm": "ffn_norm",
        "input_layernorm": "attn_norm",
    }
    for theirs, ours in parts.items():
        name = name.replace(theirs, ours)
    return name


def _interleave(weight: np.ndarray, heads: int) -> np.ndarray:
    halves = weight.reshape(heads, 2, -1, weight.shape[1])
    return halves.swapaxes(1, 2).reshape(weight.shape)
