"""Bring images into the local cluster's containerd, sending only the layers that it lacks."""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from typing import IO

from e2e.cluster.commands import explain, run
from e2e.cluster.errors import CommandFailed
from e2e.cluster.images import ctr, image_present
from e2e.cluster.steps import Steps
from e2e.images.buildah import open_buildah
from e2e.images.export import (
    MANIFEST_TYPE,
    Exported,
    LayerFolder,
    build_manifest,
    descriptor,
    digest_of,
    encode,
    export_image,
)
from e2e.images.plan import ImageSet
from e2e.images.settings import ImageSettings, read_image_settings


def load_images(images: ImageSet, *, steps: Steps, settings: ImageSettings | None = None) -> None:
    """Import those of ``images`` that the running cluster lacks."""
    chosen = settings or read_image_settings()
    environ = chosen.machine.environment
    wanted = (images.operator, images.engine)
    absent = [name for name in wanted if not image_present(name, environ=environ)]
    if not absent:
        return
    layers = LayerFolder(chosen.folder / "layers")
    with open_buildah(chosen) as buildah:
        exported = {name: export_image(buildah, name, layers=layers) for name in wanted}
        shutil.rmtree(buildah.blob_cache, ignore_errors=True)
    layers.keep_only({digest for image in exported.values() for digest in image.layers})
    for name in absent:
        with steps.step(f"import {name}"):
            send(exported[name], layers=layers, settings=chosen)
    forget_unused(wanted, settings=chosen)


def forget_unused(wanted: tuple[str, ...], *, settings: ImageSettings) -> None:
    """Drop images of other inputs that no container runs: each may hold gigabytes."""
    start, environment = ctr(settings.machine), settings.machine.environment
    images = run([*start, "images", "ls", "-q"], environment=environment).split()
    containers = run([*start, "containers", "ls"], environment=environment)
    older = [name for name in unused(images, wanted=wanted) if name not in containers.split()]
    if older:
        run([*start, "images", "rm", *older], environment=environment)


def unused(images: list[str], *, wanted: tuple[str, ...]) -> list[str]:
    """Those of ``images`` that are earlier builds of one of ``wanted``."""
    builds = {name.rpartition(":")[0] for name in wanted}
    return [name for name in images if name.rpartition(":")[0] in builds and name not in wanted]


def send(exported: Exported, *, layers: LayerFolder, settings: ImageSettings) -> None:
    """Stream an OCI archive into ``ctr images import``; nothing is written to disk on the way."""
    start = ctr(settings.machine)
    environment = settings.machine.environment
    present = set(run([*start, "content", "ls", "-q"], environment=environment).split())
    argv = [*start, "images", "import", "-"]
    child = subprocess.Popen(
        argv,
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert child.stdin is not None
    # It ended early when the pipe breaks: its exit status and words, read below, say why.
    with contextlib.suppress(BrokenPipeError), child.stdin:
        write_archive(child.stdin, exported, layers=layers, skip=present.__contains__)
    child.stdin = None
    words = child.communicate()[1].decode(errors="replace")
    status = child.returncode
    if status != 0:
        raise CommandFailed(explain(argv, status, words))


def write_archive(
    target: IO[bytes], exported: Exported, *, layers: LayerFolder, skip: Callable[[str], bool]
) -> None:
    """An OCI image layout as a tar stream, without the layers whose digest ``skip`` knows.

    containerd takes blobs that an archive lacks from its own content store.
    """
    manifest = build_manifest(exported, layers=layers)
    named = descriptor(MANIFEST_TYPE, manifest)
    named["annotations"] = {"io.containerd.image.name": exported.reference}
    with tarfile.open(fileobj=target, mode="w|") as tar:
        add_bytes(tar, "oci-layout", encode({"imageLayoutVersion": "1.0.0"}))
        add_bytes(tar, "index.json", encode({"schemaVersion": 2, "manifests": [named]}))
        for blob in (manifest, exported.config):
            add_bytes(tar, blob_name(digest_of(blob)), blob)
        for digest in exported.layers:
            if skip(digest):
                continue
            entry = tarfile.TarInfo(blob_name(digest))
            entry.size = layers.path(digest).stat().st_size
            with layers.path(digest).open("rb") as content:
                tar.addfile(entry, content)


def blob_name(digest: str) -> str:
    """A blob's place in an OCI image layout."""
    return f"blobs/{digest.replace(':', '/')}"


def add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Without times or owners, so that the bytes depend on the content alone."""
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
