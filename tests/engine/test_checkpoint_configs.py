"""Configs that ask for what has no code here are refused in one line, before weights are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetward_engine.errors import ModelUnsupported
from tests.support.checkpoint_damage import (
    WEIGHTS,
    Damage,
    assert_tells,
    config,
    edit,
    fault_of,
    rope,
    write,
)

UNSUPPORTED: dict[str, tuple[Damage, tuple[str, ...]]] = {
    "architecture": (
        config(architectures=["MambaForCausalLM"]),
        ("config.json: architectures names 'MambaForCausalLM'", "LlamaForCausalLM"),
    ),
    "no architecture": (config(architectures=None), ("architectures names nothing",)),
    "sizes": (config(hidden_size="32"), ("config.json: hidden_size must be a whole",)),
    "no layers": (config(num_hidden_layers=0), ("num_hidden_layers must be", "not 0")),
    "layers without end": (config(num_hidden_layers=10**9), ("from 1 to 1024",)),
    "positions without end": (
        config(max_position_embeddings=10**12), ("max_position_embeddings must be",),
    ),
    "heads": (config(num_key_value_heads=3), ("doesn't divide 4 heads",)),
    "odd heads": (config(head_dim=7), ("head_dim is 7",)),
    "another width": (config(head_dim=16), (WEIGHTS, "q_proj", "asks for [64, 32]")),
    "epsilon": (config(rms_norm_eps=-1), ("rms_norm_eps must be a finite number above",)),
    "theta": (config(rope_theta=True), ("rope_theta must be a number, not True",)),
    "activation": (config(hidden_act="gelu"), ("hidden_act 'gelu' has no code",)),
    "yarn": (rope(rope_type="yarn", factor=4), ("rope_scaling.rope_type 'yarn'",)),
    "old yarn": (rope(type="yarn"), ("rope_scaling.rope_type 'yarn' has no code",)),
    "half a rope": (rope(rope_type="llama3", factor=8), ("low_freq_factor is missing",)),
    "partial": (
        config(rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": 0.5}),
        ("rope_parameters.partial_rotary_factor", "no code"),
    ),
    "quantised": (
        config(quantization_config={"quant_method": "awq"}),
        ("quantization_config asks for quantised weights",),
    ),
    "code of its own": (
        config(auto_map={"AutoModel": "x.Y"}), ("auto_map", "which is never run"),
    ),
    "end of text": (
        edit("config.json", eos_token_id=999), ("config.json: eos_token_id", "not 999"),
    ),
    "window": (
        config(sliding_window=64), ("sliding_window", "this architecture has none"),
    ),
    "kinds of layers": (
        config(architectures=["MistralForCausalLM"], layer_types=["chunked_attention"] * 2),
        ("layer_types names 'chunked_attention', which has no code",),
    ),
    "too few kinds": (
        config(architectures=["MistralForCausalLM"], layer_types=["full_attention"]),
        ("layer_types has 1 entries for 2 layers",),
    ),
    "kinds without a window": (
        config(layer_types=["sliding_attention"] * 2), ("no sliding_window is given",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_config_without_code_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    damage, words = UNSUPPORTED[name]
    damage(folder)
    fault = fault_of(folder)
    assert type(fault) is ModelUnsupported
    assert_tells(fault, folder, words)
