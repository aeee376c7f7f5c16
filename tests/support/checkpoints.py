"""Tiny random checkpoints in the Hugging Face layout, written without transformers."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers.pre_tokenizers import ByteLevel
from torch import Tensor

Config = dict[str, object]
Weights = dict[str, Tensor]

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content }}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
BOS, END, TURN, TOOL = 257, 258, 259, 260
VOCABULARY = 264
"""Of the model: bytes, one merge, four added tokens, and three ids without a token."""


def make_config(**changes: object) -> Config:
    """A config.json; changes of None take a field out."""
    config: Config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "eos_token_id": [END],
    }
    return {name: value for name, value in {**config, **changes}.items() if value is not None}


def make_weights(config: Config, *, qkv_bias: bool = False, seed: int = 0) -> Weights:
    """Random float64 tensors of a config; `attention_bias` and `mlp_bias` in it are followed."""
    generator = torch.Generator().manual_seed(seed)
    size = {name: value for name, value in config.items() if isinstance(value, int)}
    hidden, ffn, dim = size["hidden_size"], size["intermediate_size"], size["head_dim"]
    queries, keys = size["num_attention_heads"] * dim, size["num_key_value_heads"] * dim
    biased, mlp_biased = config.get("attention_bias"), config.get("mlp_bias")

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64) * 0.3

    weights: Weights = {"model.embed_tokens.weight": draw(size["vocab_size"], hidden)}
    for index in range(size["num_hidden_layers"]):
        prefix = f"model.layers.{index}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}.{norm}.weight"] = 1 + draw(hidden)
        for name, rows, columns, bias in (
            ("self_attn.q_proj", queries, hidden, qkv_bias or biased),
            ("self_attn.k_proj", keys, hidden, qkv_bias or biased),
            ("self_attn.v_proj", keys, hidden, qkv_bias or biased),
            ("self_attn.o_proj", hidden, queries, biased),
            ("mlp.gate_proj", ffn, hidden, mlp_biased),
            ("mlp.up_proj", ffn, hidden, mlp_biased),
            ("mlp.down_proj", hidden, ffn, mlp_biased),
        ):
            weights[f"{prefix}.{name}.weight"] = draw(rows, columns)
            if bias:
                weights[f"{prefix}.{name}.bias"] = draw(rows)
    weights["model.norm.weight"] = 1 + draw(hidden)
    if not config.get("tie_word_embeddings"):
        weights["lm_head.weight"] = draw(size["vocab_size"], hidden)
    return weights


def write_checkpoint(folder: Path, config: Config, weights: Weights, *, shards: int = 1) -> Path:
    """Write a whole folder, its weights in one file or spread over several."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    write_json(folder / "tokenizer.json", tokenizer_definition())
    write_json(folder / "tokenizer_config.json", TOKENIZER_SETTINGS)
    if shards == 1:
        save_file(weights, folder / "model.safetensors")
        return folder
    weight_map: dict[str, str] = {}
    for number in range(shards):
        name = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = {tensor: weights[tensor] for tensor in sorted(weights)[number::shards]}
        save_file(part, folder / name)
        weight_map |= dict.fromkeys(part, name)
    write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})
    return folder


def write_json(path: Path, value: object) -> None:
    """Write one file."""
    path.write_text(json.dumps(value))


TOKENIZER_SETTINGS = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": {"__type": "AddedToken", "content": "<|begin|>", "special": True},
    "eos_token": "<|end|>",
    "chat_template": CHAT_TEMPLATE,
}


def tokenizer_definition() -> dict[str, object]:
    """A tokenizer.json of bytes and one merge; `<|turn|>` isn't called special, as in some models.

    It puts `<|begin|>` before a text, and would cut it after 8 tokens if it were let.
    """
    vocabulary = {text: index for index, text in enumerate(sorted(ByteLevel.alphabet()))}
    added = [
        (BOS, "<|begin|>", True),
        (END, "<|end|>", True),
        (TURN, "<|turn|>", False),
        (TOOL, "<tool>", False),
    ]
    begin = {"id": "<|begin|>", "ids": [BOS], "tokens": ["<|begin|>"]}
    return {
        "version": "1.0",
        "truncation": {
            "direction": "Right",
            "max_length": 8,
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "padding": None,
        "added_tokens": [
            {
                "id": index,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": special,
            }
            for index, text, special in added
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<|begin|>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {"<|begin|>": begin},
        },
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {**vocabulary, "Ab": 256},
            "merges": [["A", "b"]],
        },
    }
