"""Checkpoints that can't be served are refused in one line: file, fault, and what to do."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from fleetward_engine.config import EngineConfig
from fleetward_engine.errors import EngineError, ModelUnavailable, ModelUnsupported
from fleetward_engine.factory import build_engine
from fleetward_engine.model_source import resolve
from tests.support.checkpoint_damage import (
    INDEX,
    PICKLE,
    SECOND,
    WEIGHTS,
    Damage,
    assert_tells,
    cut,
    edit,
    fault_of,
    header,
    index,
    link_out,
    load,
    pickled,
    pipe,
    raw,
    remove,
    tensors,
    write,
)

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
        GONE, ("generation_config.json is missing, its link leads nowhere",),
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
