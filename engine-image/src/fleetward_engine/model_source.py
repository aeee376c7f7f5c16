"""From a model URI to the model's files and the digest of their bytes."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from fleetward_engine.errors import ModelUnavailable, ModelUnsupported, one_line
from fleetward_engine.file_digest import file_digest
from fleetward_engine.hf.checkpoint import CONFIG, Checkpoint, open_checkpoint

logger = logging.getLogger(__name__)

GGUF = ".gguf"
SAFETENSORS = ".safetensors"


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model's files and their digest, `sha256:<64 hex>`.

    `path` is a GGUF file, or the folder of a `checkpoint`.
    """

    path: Path
    model_digest: str
    checkpoint: Checkpoint | None = None


def resolve(uri: str, expected_digest: str | None = None) -> ResolvedModel:
    """Find the model that a URI names and check its digest.

    `package://DIST` is the one model of an installed distribution; `file:///PATH` is a `.gguf`
    file, or a folder that holds exactly one, or the folder of a Hugging Face checkpoint.

    Raises:
        ModelUnsupported: another kind of source, or of weights.
        ModelUnavailable: nothing there, nothing that can be read, more than one model, or another
            digest than expected.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator or not rest:
        raise ModelUnsupported(f"model {uri!r} is no URI: use package://NAME or file:///PATH")
    try:
        return _resolved(uri, scheme, rest, expected_digest)
    except OSError as fault:
        raise ModelUnavailable(
            f"{fault.filename or uri} can't be read, let user {os.getuid()} read it: "
            f"{fault.strerror or one_line(fault)}"
        ) from fault


def _resolved(uri: str, scheme: str, rest: str, expected_digest: str | None) -> ResolvedModel:
    if scheme == "package":
        candidates = _package_models(rest)
    elif scheme == "file":
        candidates = _path_models(Path(rest))
    else:
        raise ModelUnsupported(
            f"model sources of kind {scheme}:// can't be loaded: use package://NAME or file:///PATH"
        )
    if len(candidates) != 1:
        found = ", ".join(sorted(path.name for path in candidates)) or "none"
        raise ModelUnavailable(
            f"{uri} must hold exactly one .gguf file, or a config.json and model.safetensors; "
            f"found: {found}"
        )
    path = candidates[0]
    if path.suffix == GGUF and path.is_dir():
        raise ModelUnavailable(f"{path} is a folder: name the .gguf file itself")
    start = time.monotonic()
    checkpoint = open_checkpoint(path) if path.is_dir() else None
    digest = file_digest(path) if checkpoint is None else checkpoint.digest()
    logger.info("%s has digest %s, found in %.1f s", path, digest, time.monotonic() - start)
    if expected_digest is not None and digest != expected_digest:
        raise ModelUnavailable(
            f"{path} has digest {digest}, but {expected_digest} was pinned: "
            "bring the pinned file, or pin this one"
        )
    return ResolvedModel(path, digest, checkpoint)


def _package_models(name: str) -> list[Path]:
    try:
        files = metadata.files(name)
    except metadata.PackageNotFoundError:
        raise ModelUnavailable(f"no installed package is called {name!r}") from None
    paths = [Path(str(file.locate())) for file in files or ()]
    folders = {path.parent for path in paths if path.suffix == SAFETENSORS}
    return [*(path for path in paths if path.suffix == GGUF), *sorted(folders)]


def _path_models(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(path.glob(f"*{GGUF}"))
        # Repositories of GGUF files have a config.json too: without weights beside it, it is none.
        meant = any(path.glob(f"*{SAFETENSORS}")) or (not files and (path / CONFIG).exists())
        return [*files, path] if meant else files
    if not path.is_file():
        raise ModelUnavailable(f"no file or folder at {path}: put the .gguf file there")
    if path.suffix == SAFETENSORS or path.name == CONFIG:
        raise ModelUnsupported(f"{path} is one file of a checkpoint: name its folder")
    return [path]
