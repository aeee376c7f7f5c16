"""Push the two images to a registry, and learn the digests that it knows them by."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError, CommandFailed
from e2e.cluster.steps import Steps
from e2e.images.buildah import open_buildah
from e2e.images.plan import ImageSet
from e2e.images.settings import ImageSettings, read_image_settings


@dataclass(frozen=True, slots=True)
class Pushed:
    """An image in a registry."""

    repository: str
    tag: str
    digest: str


def target_of(reference: str, *, registry: str) -> tuple[str, str]:
    """Repository and tag under which a local image is pushed."""
    path, _, tag = reference.rpartition(":")
    return f"{registry}/{path.rpartition('/')[2]}", tag


def push_images(
    images: ImageSet, *, registry: str, steps: Steps, settings: ImageSettings | None = None
) -> tuple[Pushed, Pushed]:
    """Push operator and engine; layers that the registry has are not sent again.

    Credentials are those of ``buildah login`` or ``docker login``.

    Raises:
        ClusterError: the registry refused; in its words.
    """
    chosen = settings or read_image_settings()
    found = []
    with open_buildah(chosen) as buildah, tempfile.TemporaryDirectory() as folder:
        for reference in (images.operator, images.engine):
            repository, tag = target_of(reference, registry=registry)
            file = Path(folder) / "digest"
            with steps.step(f"push {repository}:{tag}"):
                words = ("--quiet", "--digestfile", str(file), reference)
                try:
                    buildah.run("push", *words, f"docker://{repository}:{tag}")
                except CommandFailed as error:
                    raise ClusterError(
                        f"{registry} did not take {repository}:{tag}; log in with "
                        f"`buildah login {registry.partition('/')[0]}`, and see what it said:\n"
                        f"{error}"
                    ) from error
            found.append(Pushed(repository, tag, file.read_text().strip()))
    return found[0], found[1]
