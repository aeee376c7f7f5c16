"""From `config.json` to the llama family: sizes, constants, and what there is no code for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleetward_engine.hf.json_file import JsonObject
from fleetward_engine.hf.windows import read_windows
from fleetward_engine.models.llama import LlamaConfig
from fleetward_engine.models.rope import LinearScaling, Llama3Scaling, RopeScaling

_MAX_LAYERS = 1 << 10
_MAX_WIDTH = 1 << 20
_MAX_VOCABULARY = 1 << 24
_MAX_POSITIONS = 1 << 24
_DEFAULT_THETA = 10_000.0


@dataclass(frozen=True, slots=True)
class _Architecture:
    """How one architecture departs from the family; None is what the config says.

    `slides` says whether it knows sliding windows; `window` is what a config means that says
    nothing of them. With `window_optional` there is one only where `use_sliding_window` says so.
    """

    qkv_bias: bool | None = False
    output_bias: bool | None = False
    mlp_bias: bool | None = False
    slides: bool = True
    window: int | None = None
    window_optional: bool = False


_ARCHITECTURES: Mapping[str, _Architecture] = {
    "LlamaForCausalLM": _Architecture(qkv_bias=None, output_bias=None, mlp_bias=None, slides=False),
    "MistralForCausalLM": _Architecture(window=4096),
    "Qwen2ForCausalLM": _Architecture(qkv_bias=True, window_optional=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCheckpoint:
    """What a config promises of its tensors; `tied`: the embedding is the output matrix too."""

    config: LlamaConfig
    ffn_size: int
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    tied: bool


def read_llama_config(file: JsonObject) -> LlamaCheckpoint:
    """Sizes and constants, refusing what would change the mathematics.

    Raises:
        ModelUnsupported: names the file, the field, and what there is no code for.
    """
    architecture = _architecture(file)
    _refuse_features(file)
    attention_bias = file.flag("attention_bias", default=False)
    return LlamaCheckpoint(
        config=_sizes(file, architecture),
        ffn_size=file.integer("intermediate_size", low=1, high=_MAX_WIDTH),
        qkv_bias=_either(architecture.qkv_bias, attention_bias),
        output_bias=_either(architecture.output_bias, attention_bias),
        mlp_bias=_either(architecture.mlp_bias, file.flag("mlp_bias", default=False)),
        tied=file.flag("tie_word_embeddings", default=False),
    )


def _architecture(file: JsonObject) -> _Architecture:
    names = file.items("architectures")
    known = _ARCHITECTURES.get(str(names[0])) if len(names) == 1 else None
    if known is None:
        shown = ", ".join(repr(str(name)[:80]) for name in names[:3]) or "nothing"
        file.refuse(
            "architectures", f"names {shown}, but only {', '.join(_ARCHITECTURES)} have code here"
        )
    return known


def _sizes(file: JsonObject, architecture: _Architecture) -> LlamaConfig:
    hidden = file.integer("hidden_size", low=1, high=_MAX_WIDTH)
    heads = file.integer("num_attention_heads", low=1, high=_MAX_WIDTH)
    kv_heads = file.integer("num_key_value_heads", low=1, high=heads, default=heads)
    head_dim = file.integer("head_dim", low=2, high=_MAX_WIDTH, default=hidden // heads)
    if heads % kv_heads:
        file.refuse("num_key_value_heads", f"is {kv_heads}, which doesn't divide {heads} heads")
    if head_dim % 2:
        file.refuse("head_dim", f"is {head_dim}: rotary positions need pairs of dimensions")
    theta, scaling = _rope(file)
    num_layers = file.integer("num_hidden_layers", low=1, high=_MAX_LAYERS)
    max_model_len = file.integer("max_position_embeddings", low=1, high=_MAX_POSITIONS)
    windows = read_windows(
        file,
        num_layers=num_layers,
        max_model_len=max_model_len,
        default=architecture.window,
        optional=architecture.window_optional,
    )
    if any(windows) and not architecture.slides:
        file.refuse("sliding_window", "is given, but this architecture has none: take it out")
    return LlamaConfig(
        num_layers=num_layers,
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=file.integer("vocab_size", low=1, high=_MAX_VOCABULARY),
        max_model_len=max_model_len,
        rope_theta=theta,
        rms_norm_eps=file.number("rms_norm_eps"),
        rope_scaling=scaling,
        windows=windows,
    )


def _rope(file: JsonObject) -> tuple[float, RopeScaling | None]:
    """Base and scaling; newer files hold both in one object, older ones in two fields."""
    theta = file.number("rope_theta", default=_DEFAULT_THETA)
    rope = file.section("rope_parameters") or file.section("rope_scaling")
    if rope is None:
        return theta, None
    if rope.get("partial_rotary_factor") not in (None, 1):
        rope.refuse("partial_rotary_factor", "leaves dimensions without positions: no code here")
    theta = rope.number("rope_theta", default=theta)
    kind = rope.text("rope_type", default=rope.text("type", default="default"))
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, LinearScaling(rope.number("factor"))
    if kind != "llama3":
        rope.refuse("rope_type", f"{kind[:40]!r} has no code here: only default, linear, llama3")
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    if high <= low:
        rope.refuse("high_freq_factor", f"must be above low_freq_factor ({low}), not {high}")
    length = rope.integer("original_max_position_embeddings", low=1, high=_MAX_POSITIONS)
    return theta, Llama3Scaling(rope.number("factor"), low, high, length)


def _refuse_features(file: JsonObject) -> None:
    activation = file.text("hidden_act", default="silu")
    if activation != "silu":
        file.refuse("hidden_act", f"{activation[:40]!r} has no code here: only 'silu'")
    if file.get("quantization_config") is not None:
        file.refuse("quantization_config", "asks for quantised weights: bring a checkpoint without")
    if file.get("auto_map") is not None:
        file.refuse("auto_map", "names code of the checkpoint's own, which is never run")
    if file.get("partial_rotary_factor") not in (None, 1):
        file.refuse("partial_rotary_factor", "leaves dimensions without positions: no code here")


def _either(fixed: bool | None, said: bool) -> bool:
    return said if fixed is None else fixed
