"""From a model URI to a file and the digests of what is in it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from fleetward_engine.errors import ModelUnavailable, ModelUnsupported, one_line

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A GGUF file and the digest of its bytes, `sha256:<64 hex>`."""

    path: Path
    model_digest: str


def resolve(uri: str, expected_digest: str | None = None) -> ResolvedModel:
    """Find the model file that a URI names and check its digest.

    `package://DIST` is the one `.gguf` file of an installed distribution; `file:///PATH` is a
    `.gguf` file, or a folder that holds exactly one.

    Raises:
        ModelUnsupported: another kind of source.
        ModelUnavailable: nothing there, nothing that can be read, more than one file, or another
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
        candidates = _package_files(rest)
    elif scheme == "file":
        candidates = _folder_files(Path(rest))
    else:
        raise ModelUnsupported(
            f"model sources of kind {scheme}:// can't be loaded: use package://NAME or file:///PATH"
        )
    if len(candidates) != 1:
        found = ", ".join(sorted(path.name for path in candidates)) or "none"
        raise ModelUnavailable(f"{uri} must hold exactly one .gguf file; found: {found}")
    if candidates[0].is_dir():
        raise ModelUnavailable(f"{candidates[0]} is a folder: name the .gguf file itself")
    digest = file_digest(candidates[0])
    if expected_digest is not None and digest != expected_digest:
        raise ModelUnavailable(
            f"{candidates[0]} has digest {digest}, but {expected_digest} was pinned: "
            "bring the pinned file, or pin this one"
        )
    return ResolvedModel(candidates[0], digest)


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes as `sha256:<hex>`, read in pieces."""
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
    return f"sha256:{hasher.hexdigest()}"


def _package_files(name: str) -> list[Path]:
    try:
        files = metadata.files(name)
    except metadata.PackageNotFoundError:
        raise ModelUnavailable(f"no installed package is called {name!r}") from None
    return [Path(str(file.locate())) for file in files or () if file.suffix == ".gguf"]


def _folder_files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob("*.gguf"))
    if not path.is_file():
        raise ModelUnavailable(f"no file or folder at {path}: put the .gguf file there")
    return [path]
