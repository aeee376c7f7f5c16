"""The files of a checkpoint's folder: which there are, that they lie inside it, their digest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fleetward_engine.cpu_threads import usable_cpus
from fleetward_engine.errors import ModelUnavailable, ModelUnsupported
from fleetward_engine.file_digest import file_digest
from fleetward_engine.hf.json_file import JsonObject, read_object

CONFIG = "config.json"
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.safetensors")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_MAX_CONFIG_BYTES = 1 << 20
_MAX_INDEX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder with `config.json` and weights.

    `shards` are the weight files, in the order of their names. `weight_map` says in which of them
    each tensor lies; None where there is one file and no index.
    """

    folder: Path
    config: JsonObject
    shards: tuple[Path, ...]
    weight_map: Mapping[str, Path] | None

    def required(self, name: str, *, advice: str) -> Path:
        """A file of the folder. Raises `ModelUnavailable` with the advice where it is missing."""
        return _member(self.folder, name, advice)

    def optional(self, name: str) -> Path | None:
        """A file of the folder, or None."""
        path = self.folder / name
        if not path.exists() and not path.is_symlink():
            return None
        return _member(self.folder, name, "its link leads nowhere: put the file itself there")

    def optional_object(self, name: str, *, max_bytes: int = _MAX_CONFIG_BYTES) -> JsonObject:
        """A JSON file of the folder; an empty object where there is none."""
        path = self.optional(name)
        if path is None:
            return JsonObject(self.folder / name, {})
        return read_object(path, max_bytes=max_bytes)

    def digest(self) -> str:
        """SHA-256 of what `sha256sum` prints for `config.json` and the weights, by name.

        So `LC_ALL=C sha256sum config.json *.safetensors | sha256sum` gives it, where the folder
        holds no other weights.
        """
        files = [self.folder / CONFIG, *self.shards]
        with ThreadPoolExecutor(usable_cpus()) as threads:
            digests = threads.map(file_digest, files)
        lines = sorted(
            (path.name, digest.removeprefix("sha256:"))
            for path, digest in zip(files, digests, strict=True)
        )
        text = "".join(f"{digest}  {name}\n" for name, digest in lines)
        return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()


def open_checkpoint(folder: Path) -> Checkpoint:
    """Find a checkpoint's files; weights are not read yet.

    Raises:
        ModelUnavailable: a file is missing, leads out of the folder, or can't be read as what it
            should be.
        ModelUnsupported: the weights are in a format that is never loaded.
    """
    config = read_object(
        _member(folder, CONFIG, "a checkpoint has one: fetch it again"),
        max_bytes=_MAX_CONFIG_BYTES,
    )
    single, index = folder / _WEIGHTS, folder / _INDEX
    if single.exists() and index.exists():
        raise ModelUnavailable(
            f"{folder} holds both {_WEIGHTS} and {_INDEX}: remove the one that is not meant"
        )
    if index.exists():
        weight_map = _weight_map(folder)
        shards = tuple(sorted(set(weight_map.values())))
        return Checkpoint(folder, config, shards, weight_map)
    _refuse_pickles(folder)
    weights = _member(folder, _WEIGHTS, "and there is no index of shards: fetch it again")
    return Checkpoint(folder, config, (weights,), None)


def _weight_map(folder: Path) -> dict[str, Path]:
    index = read_object(
        _member(folder, _INDEX, "fetch it again"), max_bytes=_MAX_INDEX_BYTES
    ).section("weight_map")
    if index is None or not index.values:
        raise ModelUnavailable(f"{folder / _INDEX} has no weight_map: fetch it again")
    for name, shard in index.values.items():
        if not isinstance(shard, str) or not _SHARD.fullmatch(shard):
            raise ModelUnavailable(
                f"{index.path}: tensor {name[:80]!r} must lie in a .safetensors file beside it, "
                f"not in {str(shard)[:80]!r}: fetch it again"
            )
    advice = f"{_INDEX} names it: fetch it again"
    shards = {str(shard): _member(folder, str(shard), advice)
              for shard in set(index.values.values())}  # fmt: skip
    return {name: shards[str(shard)] for name, shard in index.values.items()}


def _refuse_pickles(folder: Path) -> None:
    pickles: Sequence[str] = sorted(
        path.name for pattern in _PICKLES for path in folder.glob(pattern)
    )
    if pickles and not (folder / _WEIGHTS).exists():
        raise ModelUnsupported(
            f"{folder} holds pickled weights ({', '.join(pickles[:3])}), which are never loaded, "
            "as they may run code: convert them to safetensors"
        )


def _member(folder: Path, name: str, advice: str) -> Path:
    path = folder / name
    if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
        raise ModelUnavailable(
            f"{path} is a link to {path.resolve()}, outside its folder: put the file itself there"
        )
    if not path.exists():
        raise ModelUnavailable(f"{path} is missing, {advice}")
    if not path.is_file():
        raise ModelUnavailable(f"{path} is no regular file: put the file itself there")
    return path
