"""Checkpoints that can't be served are refused in one line: file, fault, and what to do."""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fleetward_engine.config import EngineConfig
from fleetward_engine.errors import EngineError, ModelUnavailable, ModelUnsupported
from fleetward_engine.factory import build_engine
from fleetward_engine.loading import load_model
from fleetward_engine.model_source import resolve
from tests.support.checkpoints import make_config, make_weights, write_checkpoint, write_json

WEIGHTS = "model.safetensors"
FIRST, SECOND = (f"model-0000{n}-of-00002.safetensors" for n in (1, 2))
INDEX = "model.safetensors.index.json"
PICKLE = b"\x80\x04cos\nsystem\nX\x04\x00\x00\x00exit\x85R."
Damage = Callable[[Path], object]


def write(folder: Path, *, shards: int = 1) -> Path:
    config = make_config()
    return write_checkpoint(folder, config, make_weights(config), shards=shards)


def load(folder: Path) -> None:
    load_model(resolve(f"file://{folder}"), dtype=torch.float32, device=torch.device("cpu"))


def edit(name: str, **changes: object) -> Damage:
    """Change fields of a JSON file; None becomes null."""

    def change(folder: Path) -> None:
        write_json(folder / name, {**json.loads((folder / name).read_text()), **changes})

    return change


def config(**changes: object) -> Damage:
    return edit("config.json", **changes)


def tensors(**changes: torch.Tensor | None) -> Damage:
    """Replace, add or (None) take out tensors."""

    def change(folder: Path) -> None:
        named = {name.replace("__", "."): value for name, value in changes.items()}
        kept = {**load_file(folder / WEIGHTS), **named}
        save_file({n: v for n, v in kept.items() if v is not None}, folder / WEIGHTS)

    return change


def raw(name: str, content: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(content)


def remove(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def cut(name: str, share: float) -> Damage:
    def change(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * share)])

    return change


def link_out(name: str) -> Damage:
    def change(folder: Path) -> None:
        (folder / name).rename(folder.parent / f"elsewhere-{name}")
        (folder / name).symlink_to(folder.parent / f"elsewhere-{name}")

    return change


def index(**weight_map: str) -> Damage:
    """Say that tensors lie in other files."""

    def change(folder: Path) -> None:
        whole = json.loads((folder / INDEX).read_text())
        whole["weight_map"] |= {n.replace("__", "."): file for n, file in weight_map.items()}
        write_json(folder / INDEX, whole)

    return change


def pipe(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")


def pickled(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(PICKLE)


def header(length: int, text: bytes = b"{}") -> bytes:
    return struct.pack("<Q", length) + text


def rope(**fields: object) -> Damage:
    return config(rope_scaling=fields)


NORM = "model__norm__weight"
GONE, NO_CODE = ModelUnavailable, ModelUnsupported
DAMAGES: dict[str, tuple[Damage, type[EngineError], tuple[str, ...]]] = {
    "weights cut": (cut(WEIGHTS, 0.7), GONE, (WEIGHTS, "as safetensors", "fetch it again")),
    "weights cut in the header": (cut(WEIGHTS, 0.001), GONE, (WEIGHTS, "as safetensors")),
    "weights empty": (raw(WEIGHTS, b""), GONE, (WEIGHTS, "header too small")),
    "weights garbage": (raw(WEIGHTS, b"\x00garbage" * 99), GONE, (WEIGHTS, "claims a header of")),
    "header bomb": (raw(WEIGHTS, header(1 << 62)), GONE, (WEIGHTS, f"{1 << 62} bytes")),
    "header of 99 MB": (raw(WEIGHTS, header(99 << 20)), GONE, (WEIGHTS, "claims a header of")),
    "header nested": (
        raw(WEIGHTS, header(200_000, b"[" * 100_000 + b"]" * 100_000)),
        GONE, (WEIGHTS, "as safetensors"),
    ),
    "weights missing": (remove(WEIGHTS), GONE, (WEIGHTS, "is missing", "no index of shards")),
    "config missing": (remove("config.json"), GONE, ("config.json is missing", "fetch it again")),
    "tokenizer missing": (remove("tokenizer.json"), GONE, ("tokenizer.json", "save_pretrained")),
    "only pickles": (pickled, NO_CODE, ("pytorch_model.bin", "never loaded", "convert them")),
    "weights linked": (link_out(WEIGHTS), GONE, (WEIGHTS, "outside its folder", "put the file")),
    "config linked": (link_out("config.json"), GONE, ("config.json is a link to", "outside")),
    "tokenizer linked": (link_out("tokenizer.json"), GONE, ("tokenizer.json is a link to",)),
    "link to nothing": (
        lambda folder: (folder / "generation_config.json").symlink_to(folder / "none"),
        GONE, ("generation_config.json", "is missing"),
    ),
    "a pipe": (
        pipe,
        GONE, ("config.json is no regular file",),
    ),
    "both forms": (raw(INDEX, b"{}"), GONE, (f"both {WEIGHTS} and {INDEX}", "remove the one")),
    "a GGUF file beside": (raw("m.gguf", b"GGUF"), GONE, ("exactly one .gguf file", "m.gguf")),
    "dtype": (
        tensors(**{NORM: torch.ones(32, dtype=torch.int8)}),
        NO_CODE, (WEIGHTS, "'model.norm.weight' is I8", "only F64, F32, F16, BF16"),
    ),
    "shape": (
        tensors(**{NORM: torch.ones(31)}),
        NO_CODE, (WEIGHTS, "'model.norm.weight' has shape [31]", "asks for [32]"),
    ),
    "NaN": (
        tensors(**{NORM: torch.full((32,), float("nan"))}),
        GONE, (WEIGHTS, "'model.norm.weight' holds numbers that are not finite"),
    ),
    "infinite once converted": (
        tensors(**{NORM: torch.full((32,), 1e39, dtype=torch.float64)}),
        GONE, (WEIGHTS, "not finite in float32"),
    ),
    "tensor missing": (
        tensors(**{NORM: None}), NO_CODE, ("no tensor 'model.norm.weight'", "fetch it again"),
    ),
    "tensor too many": (
        tensors(model__layers__0__self_attn__q_norm__weight=torch.ones(8)),
        NO_CODE, ("no code for tensors 'model.layers.0.self_attn.q_norm.weight'",),
    ),
    "no JSON": (raw("config.json", b"{"), GONE, ("config.json can't be read as JSON", "fetch")),
    "no text": (raw("config.json", b"\xff\xfe\x00"), GONE, ("config.json can't be read as JSON",)),
    "no object": (raw("config.json", b"[]"), GONE, ("config.json must hold a JSON object",)),
    "nested": (raw("config.json", b"[" * 99_999), GONE, ("config.json can't be read as JSON",)),
    "said twice": (
        raw("config.json", b'{"a": 1, "a": 2}'), GONE, ("config.json", "'a' stands there twice"),
    ),
    "a huge number": (raw("config.json", b'{"a": ' + b"9" * 9999 + b"}"), GONE, ("config.json",)),
    "no number": (raw("config.json", b'{"a": NaN}'), GONE, ("config.json", "NaN is no JSON")),
    "huge": (raw("config.json", b" " * (2 << 20)), GONE, ("config.json is longer than 1048576",)),
    "architecture": (
        config(architectures=["MambaForCausalLM"]),
        NO_CODE, ("config.json: architectures names MambaForCausalLM", "LlamaForCausalLM"),
    ),
    "no architecture": (config(architectures=None), NO_CODE, ("architectures names nothing",)),
    "sizes": (config(hidden_size="32"), NO_CODE, ("config.json: hidden_size must be a whole",)),
    "no layers": (config(num_hidden_layers=0), NO_CODE, ("num_hidden_layers must be", "not 0")),
    "layers without end": (config(num_hidden_layers=10**9), NO_CODE, ("from 1 to 1024",)),
    "positions without end": (
        config(max_position_embeddings=10**12), NO_CODE, ("max_position_embeddings must be",),
    ),
    "heads": (config(num_key_value_heads=3), NO_CODE, ("doesn't divide 4 heads",)),
    "odd heads": (config(head_dim=7), NO_CODE, ("head_dim is 7",)),
    "another width": (config(head_dim=16), NO_CODE, (WEIGHTS, "q_proj", "asks for [64, 32]")),
    "epsilon": (config(rms_norm_eps=-1), NO_CODE, ("rms_norm_eps must be a finite number above",)),
    "theta": (config(rope_theta=True), NO_CODE, ("rope_theta must be a number, not True",)),
    "activation": (config(hidden_act="gelu"), NO_CODE, ("hidden_act 'gelu' has no code",)),
    "yarn": (rope(rope_type="yarn", factor=4), NO_CODE, ("rope_scaling.rope_type 'yarn'",)),
    "old yarn": (rope(type="yarn"), NO_CODE, ("rope_scaling.rope_type 'yarn' has no code",)),
    "half a rope": (rope(rope_type="llama3", factor=8), NO_CODE, ("low_freq_factor is missing",)),
    "partial": (
        config(rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": 0.5}),
        NO_CODE, ("rope_parameters.partial_rotary_factor", "no code"),
    ),
    "quantised": (
        config(quantization_config={"quant_method": "awq"}),
        NO_CODE, ("quantization_config asks for quantised weights",),
    ),
    "code of its own": (
        config(auto_map={"AutoModel": "x.Y"}), NO_CODE, ("auto_map", "which is never run"),
    ),
    "end of text": (
        edit("config.json", eos_token_id=999), NO_CODE, ("config.json: eos_token_id", "not 999"),
    ),
    "window": (
        config(sliding_window=64), NO_CODE, ("sliding_window", "this architecture has none"),
    ),
    "kinds of layers": (
        config(architectures=["MistralForCausalLM"], layer_types=["chunked_attention"] * 2),
        NO_CODE, ("layer_types names 'chunked_attention', which has no code",),
    ),
    "too few kinds": (
        config(architectures=["MistralForCausalLM"], layer_types=["full_attention"]),
        NO_CODE, ("layer_types has 1 entries for 2 layers",),
    ),
    "kinds without a window": (
        config(layer_types=["sliding_attention"] * 2), NO_CODE, ("no sliding_window is given",),
    ),
    "tokenizer no JSON": (raw("tokenizer.json", b"{]"), GONE, ("tokenizer.json can't be read",)),
    "tokenizer empty": (raw("tokenizer.json", b"{}"), GONE, ("tokenizer.json", "as a tokenizer")),
    "template broken": (
        edit("tokenizer_config.json", chat_template="{% for %}"), NO_CODE, ("chat template",),
    ),
    "template no text": (
        edit("tokenizer_config.json", chat_template=7),
        NO_CODE, ("tokenizer_config.json: chat_template must be a text, not 7",),
    ),
}  # fmt: skip


def fault_of(folder: Path) -> EngineError:
    with pytest.raises(EngineError) as caught:
        load(folder)
    return caught.value


def assert_tells(fault: EngineError, folder: Path, words: tuple[str, ...]) -> None:
    message = str(fault)
    assert str(folder) in message, message
    assert "\n" not in message, message
    assert len(message) < 600, message
    for each in words:
        assert each in message, message


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    damage, kind, words = DAMAGES[name]
    damage(folder)
    fault = fault_of(folder)
    assert type(fault) is kind
    assert_tells(fault, folder, words)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (remove(SECOND), (SECOND, "is missing", f"{INDEX} names it")),
        (cut(SECOND, 0.9), (SECOND, "as safetensors", "fetch it again")),
        (link_out(SECOND), (SECOND, "is a link to", "outside its folder")),
        (raw(INDEX, b'{"weight_map": {}}'), (INDEX, "no weight_map")),
        (raw(INDEX, b'{"weight_map": {"a": 7}}'), (INDEX, "'a' must lie in a .safetensors")),
        (index(lm_head__weight="../../etc/passwd"), (INDEX, "'../../etc/passwd'")),
        (index(lm_head__weight="/etc/passwd"), (INDEX, "'/etc/passwd'")),
        (index(lm_head__weight="x.bin"), (INDEX, "not in 'x.bin'")),
        (index(lm_head__weight=SECOND), ("disagree on tensor 'lm_head.weight'", "revision")),
        (index(more=SECOND), (SECOND, "disagree on tensor 'more'")),
    ],
    ids=str,
)
def test_shards_that_do_not_fit_together_are_refused_in_one_line(
    damage: Damage, words: tuple[str, ...], tmp_path: Path
) -> None:
    folder = write(tmp_path / "model", shards=2)
    damage(folder)
    assert_tells(fault_of(folder), folder, words)


def test_what_lies_beside_a_checkpoint_is_never_opened(tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    for name in ("pytorch_model.bin", "consolidated.00.pth", "optimizer.pt", "modeling_x.py"):
        (folder / name).write_bytes(PICKLE)
        (folder / name).chmod(0)
    (folder / "adapter.safetensors").symlink_to("/etc/passwd")
    load(folder)


def test_a_link_inside_the_folder_is_followed(tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    (folder / "..data").mkdir()
    (folder / WEIGHTS).rename(folder / "..data" / WEIGHTS)
    (folder / WEIGHTS).symlink_to(Path("..data") / WEIGHTS)
    load(folder)


def test_one_file_of_a_checkpoint_is_refused_with_its_folder(tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    for name in (WEIGHTS, "config.json"):
        with pytest.raises(ModelUnsupported, match="name its folder"):
            resolve(f"file://{folder / name}")


def test_a_config_beside_a_gguf_file_makes_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    (tmp_path / "config.json").write_text("{}")
    assert resolve(f"file://{tmp_path}").path == tmp_path / "m.gguf"


def test_another_digest_than_the_pinned_one_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    digest = resolve(f"file://{folder}").model_digest
    assert resolve(f"file://{folder}", digest).path == folder
    edit("config.json", rope_theta=5e5)(folder)
    with pytest.raises(ModelUnavailable, match=r"model has digest sha256:.*was pinned"):
        resolve(f"file://{folder}", digest)


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "tokenizer_config.json", WEIGHTS]
)
def test_bytes_changed_anywhere_are_loaded_or_refused_by_name(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    whole = (folder / name).read_bytes()
    rng = random.Random(11)  # noqa: S311 - a choice of bytes, the same each time
    refused = 0
    for _ in range(60):
        broken = bytearray(whole)
        at = rng.randrange(min(len(whole), 3000))
        broken[at : at + 2] = rng.choice([b"0}", b'"]', rng.randbytes(2)])
        (folder / name).write_bytes(broken)
        settings = EngineConfig(
            model_uri=f"file://{folder}", served_model_names=("m",), dtype="float32",
            kv_cache_memory_bytes=100_000,
        )  # fmt: skip
        try:
            build_engine(settings, lambda: 0.0)
        except EngineError as fault:
            refused += 1
            assert_tells(fault, folder, ())
    assert refused > 10
