"""Images in the cluster: import archives, ask what is there, make the sandbox image."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterError
from e2e.cluster.health import socket_ok
from e2e.cluster.paths import Paths, cluster_paths
from e2e.cluster.settings import Settings, read_settings

SANDBOX_NAME = "localhost/fleetward-sandbox"
APPLETS = (
    *("sh", "env", "id", "date", "echo", "true", "sleep", "timeout", "kill", "ps"),
    *("wget", "httpd", "nc"),
    *("ls", "cat", "head", "tail", "grep", "mkdir", "touch", "rm"),
)
"""Names under which busybox is found in the image; probes and test pods use them too."""

LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class SandboxImage:
    """The image whose container holds a pod's namespaces: a static busybox that sleeps.

    ``reference`` names its content, so that another busybox is another image.
    """

    reference: str
    layer: bytes


def load_image(archive: Path, *, environ: Mapping[str, str] | None = None) -> list[str]:
    """Import an OCI or Docker archive into the running cluster; returns the names it brought."""
    settings = read_settings(environ)
    if not archive.is_file():
        raise ClusterError(f"{archive} is no file: build the image archive first")
    argv = [*ctr(settings), "images", "import", str(archive)]
    printed = run(argv, environment=settings.environment)
    return re.findall(r"^unpacking (\S+) \(sha256:", printed, flags=re.MULTILINE)


def image_present(reference: str, *, environ: Mapping[str, str] | None = None) -> bool:
    """Whether the running cluster has an image of exactly this name."""
    settings = read_settings(environ)
    argv = [*ctr(settings), "images", "ls", "-q", f"name=={reference}"]
    return bool(run(argv, environment=settings.environment).strip())


def ctr(settings: Settings, *, paths: Paths | None = None) -> list[str]:
    """The start of a ``ctr`` command line against the cluster's containerd."""
    place = paths or cluster_paths(settings)
    if not socket_ok(place.containerd_socket):
        raise ClusterError("the cluster's containerd does not run: start it with `make cluster-up`")
    return ["ctr", "-a", str(place.containerd_socket), "-n", "k8s.io"]


def describe_sandbox_image(settings: Settings) -> SandboxImage:
    """Made from the machine's static busybox; nothing is downloaded."""
    busybox = shutil.which("busybox", path=settings.environment["PATH"])
    if busybox is None:
        raise ClusterError("busybox is missing: install the Debian package busybox-static")
    layer = build_layer(Path(busybox).read_bytes())
    return SandboxImage(f"{SANDBOX_NAME}:{sha256(layer)[:12]}", layer)


def import_sandbox_image(image: SandboxImage, *, machine: str, settings: Settings) -> None:
    """Put it into containerd unless it is there."""
    argv = [*ctr(settings), "images", "ls", "-q", f"name=={image.reference}"]
    if run(argv, environment=settings.environment).strip():
        return
    with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
        archive.write(build_archive(image, architecture=ARCHITECTURES[machine]))
        archive.flush()
        argv = [*ctr(settings), "images", "import", archive.name]
        run(argv, environment=settings.environment)


def build_layer(busybox: bytes) -> bytes:
    """A layer with busybox, its names, ``/tmp`` and a user list; same input, same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777)):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, mode
            tar.addfile(folder)
        add_file(tar, "bin/busybox", busybox, mode=0o755)
        add_file(tar, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n", mode=0o644)
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return buffer.getvalue()


def build_archive(image: SandboxImage, *, architecture: str) -> bytes:
    """An OCI image layout as one tar file."""
    config = json_bytes(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Entrypoint": ["/bin/sleep", "2147483647"], "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(image.layer)}"]},
        }
    )
    manifest = json_bytes(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": descriptor(CONFIG_TYPE, config),
            "layers": [descriptor(LAYER_TYPE, image.layer)],
        }
    )
    named = descriptor(MANIFEST_TYPE, manifest)
    named["annotations"] = {"io.containerd.image.name": image.reference}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        add_file(tar, "oci-layout", json_bytes({"imageLayoutVersion": "1.0.0"}), mode=0o644)
        index = json_bytes({"schemaVersion": 2, "manifests": [named]})
        add_file(tar, "index.json", index, mode=0o644)
        for blob in (config, manifest, image.layer):
            add_file(tar, f"blobs/sha256/{sha256(blob)}", blob, mode=0o644)
    return buffer.getvalue()


def add_file(tar: tarfile.TarFile, name: str, content: bytes, *, mode: int) -> None:
    """Without times or owners, so that the bytes depend on the content alone."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def descriptor(media_type: str, blob: bytes) -> dict[str, object]:
    """How an OCI document points to a blob."""
    return {"mediaType": media_type, "digest": f"sha256:{sha256(blob)}", "size": len(blob)}


def json_bytes(document: object) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def sha256(blob: bytes) -> str:
    return hashlib.sha256(blob).hexdigest()
