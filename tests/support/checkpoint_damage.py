"""Ways to damage a checkpoint's folder, and what its refusal must look like."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fleetward_engine.errors import EngineError
from fleetward_engine.loading import load_model
from fleetward_engine.model_source import resolve
from tests.support.checkpoints import make_config, make_weights, write_checkpoint, write_json

WEIGHTS = "model.safetensors"
FIRST, SECOND = (f"model-0000{n}-of-00002.safetensors" for n in (1, 2))
INDEX = "model.safetensors.index.json"
PICKLE = b"\x80\x04cos\nsystem\nX\x04\x00\x00\x00exit\x85R."
Damage = Callable[[Path], object]


def write(folder: Path, *, shards: int = 1) -> Path:
    """A whole checkpoint."""
    config = make_config()
    return write_checkpoint(folder, config, make_weights(config), shards=shards)


def load(folder: Path) -> None:
    """Load it as an engine does."""
    load_model(resolve(f"file://{folder}"), dtype=torch.float32, device=torch.device("cpu"))


def edit(name: str, **changes: object) -> Damage:
    """Change fields of a JSON file; None becomes null."""

    def change(folder: Path) -> None:
        write_json(folder / name, {**json.loads((folder / name).read_text()), **changes})

    return change


def config(**changes: object) -> Damage:
    """Change fields of config.json."""
    return edit("config.json", **changes)


def tensors(**changes: torch.Tensor | None) -> Damage:
    """Replace, add or (None) take out tensors."""

    def change(folder: Path) -> None:
        named = {name.replace("__", "."): value for name, value in changes.items()}
        kept = {**load_file(folder / WEIGHTS), **named}
        save_file({n: v for n, v in kept.items() if v is not None}, folder / WEIGHTS)

    return change


def raw(name: str, content: bytes) -> Damage:
    """Put other bytes into a file."""
    return lambda folder: (folder / name).write_bytes(content)


def remove(name: str) -> Damage:
    """Take a file away."""
    return lambda folder: (folder / name).unlink()


def cut(name: str, share: float) -> Damage:
    """Keep the first share of a file."""

    def change(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * share)])

    return change


def link_out(name: str) -> Damage:
    """Put a link to elsewhere into a file's place."""

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
    """Put a named pipe into the config's place."""
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")


def pickled(folder: Path) -> None:
    """Leave pickled weights alone."""
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(PICKLE)


def header(length: int, text: bytes = b"{}") -> bytes:
    """A safetensors file that claims a header of this length."""
    return struct.pack("<Q", length) + text


def rope(**fields: object) -> Damage:
    """Scale rotary positions."""
    return config(rope_scaling=fields)


def fault_of(folder: Path) -> EngineError:
    """Why it can't be loaded."""
    with pytest.raises(EngineError) as caught:
        load(folder)
    return caught.value


def assert_tells(fault: EngineError, folder: Path, words: tuple[str, ...]) -> None:
    """One line, not long, that names the folder and holds these words."""
    message = str(fault)
    assert str(folder) in message, message
    assert "\n" not in message, message
    assert len(message) < 600, message
    for each in words:
        assert each in message, message
