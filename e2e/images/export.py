"""An image as OCI documents and layer files on disk, each layer kept once and uncompressed.

Uncompressed on purpose: the files never leave the machine, and compressing 1 GB costs more than
anything it saves.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError
from e2e.images.buildah import Buildah

LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"


@dataclass(frozen=True, slots=True)
class Exported:
    """An image's configuration and the digests of its layers, lowest first."""

    reference: str
    config: bytes
    layers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LayerFolder:
    """Layer files by digest; ``buildah`` fills it."""

    folder: Path

    def path(self, digest: str) -> Path:
        """Where the layer of this digest lies."""
        return self.folder / digest.removeprefix("sha256:")

    def missing(self, digests: tuple[str, ...]) -> list[str]:
        """Those of ``digests`` that are not here."""
        return [digest for digest in digests if not self.path(digest).exists()]

    def keep_only(self, digests: set[str]) -> None:
        """Delete every other layer."""
        wanted = {self.path(digest).name for digest in digests}
        for file in self.folder.iterdir():
            if file.name not in wanted:
                file.unlink()


def export_image(buildah: Buildah, reference: str, *, layers: LayerFolder) -> Exported:
    """Bring every layer of ``reference`` into ``layers``; what is there already costs nothing."""
    config = buildah.config(reference)
    exported = Exported(reference, encode(config), layer_digests(config))
    layers.folder.mkdir(parents=True, exist_ok=True)
    for digest in layers.missing(exported.layers):
        adopt(buildah.blob_cache / digest, layers.path(digest))
    if layers.missing(exported.layers):
        export_all_layers(buildah, reference, layers=layers)
    absent = layers.missing(exported.layers)
    if absent:
        raise ClusterError(f"{reference} was exported without its layers {', '.join(absent)}")
    return exported


def export_all_layers(buildah: Buildah, reference: str, *, layers: LayerFolder) -> None:
    """Have buildah write the whole image to a folder, then keep the layers that are new."""
    with tempfile.TemporaryDirectory(dir=layers.folder.parent, prefix="export-") as place:
        buildah.run("push", "--quiet", "--disable-compression", reference, f"dir:{place}")
        for file in Path(place).iterdir():
            if len(file.name) == hashlib.sha256().digest_size * 2:
                adopt(file, layers.path(file.name))


def adopt(source: Path, target: Path) -> None:
    """Give the file a second name where it exists; fall back to a copy across file systems."""
    if not source.exists() or target.exists():
        return
    partial = target.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    try:
        os.link(source, partial)
    except OSError:
        shutil.copyfile(source, partial)
    partial.rename(target)


def layer_digests(config: dict[str, object]) -> tuple[str, ...]:
    """An uncompressed layer's digest is its ``diff_id``."""
    rootfs = config.get("rootfs")
    if not isinstance(rootfs, dict):
        raise ClusterError("an image configuration without rootfs: the image storage is damaged")
    return tuple(map(str, rootfs["diff_ids"]))


def build_manifest(exported: Exported, *, layers: LayerFolder) -> bytes:
    """The OCI manifest; the same image gives the same bytes."""
    described = [
        {"mediaType": LAYER_TYPE, "digest": digest, "size": layers.path(digest).stat().st_size}
        for digest in exported.layers
    ]
    return encode(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": descriptor(CONFIG_TYPE, exported.config),
            "layers": described,
        }
    )


def descriptor(media_type: str, blob: bytes) -> dict[str, object]:
    """How an OCI document points to a blob."""
    return {"mediaType": media_type, "digest": digest_of(blob), "size": len(blob)}


def digest_of(blob: bytes) -> str:
    """The OCI digest of these bytes."""
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def encode(document: object) -> bytes:
    """Stable bytes of an OCI document."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
