"""Checkpoints in the Hugging Face layout compute what a plain reference does, and transformers."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from fleetward_engine.config import EngineConfig
from fleetward_engine.factory import build_engine
from fleetward_engine.loading import load_model
from fleetward_engine.model_source import resolve
from fleetward_engine.models.llama import Llama
from tests.support.checkpoints import (
    CHAT_TEMPLATE,
    Config,
    Weights,
    make_config,
    make_weights,
    write_checkpoint,
)
from tests.support.demo_model import our_logits
from tests.support.dense_llama import dense_logits

CPU = torch.device("cpu")
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
CASES: dict[str, Config] = {
    "llama": {},
    "tied": {"tie_word_embeddings": True},
    "wide heads": {"head_dim": 16, "num_key_value_heads": 4},
    "one kv head": {"num_key_value_heads": 1, "num_hidden_layers": 3},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "llama3 rope": {"rope_scaling": LLAMA3, "head_dim": 16, "rope_theta": 500.0},
    "linear rope": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "mistral": {
        "architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 256,
    },
    "qwen2": {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "tie_word_embeddings": True,
        "sliding_window": 16, "use_sliding_window": False,
    },
}  # fmt: skip


def random_tokens(count: int) -> list[int]:
    return torch.randint(0, 256, (count,)).tolist()


def load(folder: Path, dtype: torch.dtype = torch.float64) -> Llama:
    return load_model(resolve(f"file://{folder}"), dtype=dtype, device=CPU).model


def make(name: str) -> tuple[Config, Weights]:
    config = make_config(**CASES[name])
    return config, make_weights(config, qkv_bias=name == "qwen2")


@torch.inference_mode()
def greatest_difference(model: Llama, expected: Tensor, tokens: list[int]) -> float:
    size = len(tokens)
    got = [our_logits(model, tokens, chunks=c) for c in ([size], [1, 7, size - 8], [size - 1, 1])]
    return max(float((logits - expected).abs().max()) for logits in got)


@pytest.mark.parametrize("name", CASES)
def test_a_checkpoint_computes_what_the_dense_reference_does(name: str, tmp_path: Path) -> None:
    config, weights = make(name)
    tokens = random_tokens(60)
    expected = dense_logits(config, weights, tokens)
    model = load(write_checkpoint(tmp_path, config, weights))
    assert greatest_difference(model, expected, tokens) < 1e-9
    assert float(expected.std()) > 0.1


@pytest.mark.parametrize("name", CASES)
def test_a_checkpoint_computes_what_transformers_does(name: str, tmp_path: Path) -> None:
    # Its norms are float32 whatever the model's dtype: 1e-5 of a logit on these models.
    config, weights = make(name)
    write_checkpoint(tmp_path / "ours", config, weights)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "ours", dtype=torch.float64).eval()
    tokens = random_tokens(60)
    with torch.inference_mode():
        expected = theirs(torch.tensor([tokens]), use_cache=False).logits[0]
    assert greatest_difference(load(tmp_path / "ours"), expected, tokens) < 1e-4
    # As transformers itself writes it, with the fields of its own version, in shards.
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "theirs" / file).symlink_to(tmp_path / "theirs" / f"real-{file}")
        (tmp_path / "theirs" / f"real-{file}").write_bytes((tmp_path / "ours" / file).read_bytes())
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 1
    assert greatest_difference(load(tmp_path / "theirs"), expected, tokens) < 1e-4


def test_shards_and_one_file_are_the_same_model(tmp_path: Path) -> None:
    config, weights = make("biases")
    tokens = random_tokens(30)
    logits = [
        our_logits(load(write_checkpoint(tmp_path / str(n), config, weights, shards=n)), tokens,
                   chunks=[30])
        for n in (1, 2, 5)
    ]  # fmt: skip
    assert torch.equal(logits[0], logits[1])
    assert torch.equal(logits[0], logits[2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_weights_of_every_dtype_are_converted_on_the_way(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    config, weights = make("llama")
    rounded = {name: value.to(dtype) for name, value in weights.items()}
    tokens = random_tokens(20)
    expected = dense_logits(config, {n: v.double() for n, v in rounded.items()}, tokens)
    model = load(write_checkpoint(tmp_path, config, rounded))
    assert greatest_difference(model, expected, tokens) < 1e-9
    low = load(tmp_path, torch.bfloat16)
    assert low.dtype is torch.bfloat16
    assert greatest_difference(low, expected, tokens) < 0.5


def test_an_output_matrix_beside_a_tied_embedding_and_old_buffers_are_left_aside(
    tmp_path: Path,
) -> None:
    config, weights = make("tied")
    tokens = random_tokens(20)
    expected = dense_logits(config, weights, tokens)
    weights["lm_head.weight"] = torch.zeros(3)
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(4)
    model = load(write_checkpoint(tmp_path, config, weights))
    assert greatest_difference(model, expected, tokens) < 1e-9


def test_a_checkpoint_inside_a_package_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, weights = make("llama")
    folder = write_checkpoint(tmp_path / "tiny_model" / "weights", config, weights)
    info = tmp_path / "tiny_model-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-model\nVersion: 1\n")
    files = [*folder.iterdir(), info / "METADATA"]
    record = "".join(f"{file.relative_to(tmp_path)},,\n" for file in files)
    (info / "RECORD").write_text(record)
    monkeypatch.syspath_prepend(tmp_path)
    resolved = resolve("package://tiny-model")
    assert resolved.path == folder
    assert resolved == resolve(f"file://{folder}", resolved.model_digest)


def test_an_engine_serves_a_checkpoint_and_tells_its_digests(tmp_path: Path) -> None:
    config, weights = make("llama")
    write_checkpoint(tmp_path, config, weights, shards=2)
    settings = EngineConfig(
        model_uri=f"file://{tmp_path}", served_model_names=("m",), dtype="float32",
        kv_cache_memory_bytes=100_000,
    )  # fmt: skip
    _, state = build_engine(settings, lambda: 0.0)
    listed = "".join(
        f"{hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()}  {name}\n"
        for name in (
            "config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
        )
    )  # fmt: skip
    assert state.model_digest == "sha256:" + hashlib.sha256(listed.encode()).hexdigest()
    template = "sha256:" + hashlib.sha256(CHAT_TEMPLATE.encode()).hexdigest()
    assert state.chat_template_digest == template
    for name, changed in (("tokenizer.json", "tokenizer_digest"), ("config.json", "model_digest")):
        path = tmp_path / name
        path.write_text(path.read_text() + " ")
        _, other = build_engine(settings, lambda: 0.0)
        differing = {field for field in type(state).model_fields
                     if getattr(state, field) != getattr(other, field)}  # fmt: skip
        assert differing == {changed}
        state = other
