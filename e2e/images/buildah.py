"""buildah with a storage of its own in the cache folder, and no mount left behind."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.commands import run, succeeds
from e2e.cluster.errors import CommandFailed
from e2e.images.settings import CERTIFICATE_BUNDLE, CERTIFICATES, ImageSettings

RUN_FOLDERS = Path("/run/fleetward-images")
CERTIFICATES_BOUND = f"{CERTIFICATES}:{CERTIFICATES}:ro"


@dataclass(frozen=True, slots=True)
class Buildah:
    """Commands on one image storage."""

    storage: Path
    blob_cache: Path
    settings: ImageSettings

    def run(self, *words: str) -> str:
        """Run one buildah command; :class:`CommandFailed` tells what it said."""
        return run(self._command(words), environment=self._environment())

    def exists(self, reference: str) -> bool:
        """Whether the storage has an image of this name."""
        words = ("inspect", "--type", "image", "--format", "{{.FromImageID}}", reference)
        return succeeds(self._command(words), environment=self._environment())

    def build(
        self, context: Path, *, tag: str, words: Sequence[str], keep_blobs: bool = False
    ) -> None:
        """``buildah build`` with the machine's certificates and pip settings lent, not baked in.

        ``keep_blobs`` keeps each new layer's tar file in ``blob_cache``: an export that finds it
        there need not read the whole image once more.
        """
        lent = ["--network", "host"]
        if CERTIFICATE_BUNDLE.exists():
            lent += ["-v", CERTIFICATES_BOUND, "--build-arg", f"PIP_CERT={CERTIFICATE_BUNDLE}"]
        if self.settings.pip_config:
            lent += ["-v", f"{self.settings.pip_config}:/etc/pip.conf:ro"]
        if keep_blobs:
            self.blob_cache.mkdir(parents=True, exist_ok=True)
            lent += ["--blob-cache", str(self.blob_cache)]
        self.run("build", "--quiet", "--layers", *lent, "--tag", tag, *words, str(context))

    def config(self, reference: str) -> dict[str, object]:
        """The image's OCI configuration document."""
        document = json.loads(self.run("inspect", "--type", "image", reference))
        config = document["OCIv1"]
        if not isinstance(config, dict):
            raise CommandFailed(f"buildah inspect shows no OCI configuration for {reference}")
        return config

    def references(self) -> list[str]:
        """Names of all tagged images."""
        images = json.loads(self.run("images", "--json") or "[]")
        return sorted(name for image in images for name in image.get("names") or [])

    def _command(self, words: Sequence[str]) -> list[str]:
        # Each storage has a run folder of its own: what it says of mounts is about that storage.
        mark = hashlib.sha256(str(self.storage).encode()).hexdigest()[:12]
        places = ["--root", str(self.storage), "--runroot", str(RUN_FOLDERS / mark)]
        return ["buildah", *places, "--storage-driver", "overlay", *words]

    def _environment(self) -> Mapping[str, str]:
        return {**self.settings.machine.environment, "BUILDAH_ISOLATION": "chroot"}


@contextmanager
def open_buildah(settings: ImageSettings) -> Iterator[Buildah]:
    """One build at a time; at the end no working container and no mount is left."""
    storage = settings.machine.cache / "buildah"
    storage.mkdir(parents=True, exist_ok=True)
    with (storage / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        buildah = Buildah(storage / "storage", storage / "blobs", settings)
        try:
            yield buildah
        finally:
            buildah.run("rm", "--all")
            unmount_below(buildah.storage, environment=settings.machine.environment)


def unmount_below(folder: Path, *, environment: Mapping[str, str]) -> None:
    """Take down, innermost first, what the storage driver left mounted."""
    for point in reversed(mounts_below(folder, table=Path("/proc/self/mounts").read_text())):
        run(["umount", point], environment=environment)


def mounts_below(folder: Path, *, table: str) -> list[str]:
    """Mount points inside ``folder``, in the order they were mounted."""
    points = [line.split()[1] for line in table.splitlines()]
    return [point for point in points if Path(point).is_relative_to(folder)]
