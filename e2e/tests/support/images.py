"""Images that only tests run: ours, broken on purpose."""

from __future__ import annotations

from pathlib import Path

from e2e.cluster.steps import Steps
from e2e.images.build import build_images
from e2e.images.buildah import open_buildah
from e2e.images.export import LayerFolder, export_image
from e2e.images.load import send
from e2e.images.settings import read_image_settings

_FAULTS = Path(__file__).resolve().parents[1] / "faults"


def image_without_removal() -> str:
    """Build and import the engine whose purge removes nothing; returns its reference."""
    settings = read_image_settings()
    engine = build_images(steps=Steps(), settings=settings).engine
    reference = f"{engine}-no-removal"
    with open_buildah(settings) as buildah:
        buildah.build(_FAULTS / "no_removal", tag=reference, words=[f"--build-arg=ENGINE={engine}"])
        layers = LayerFolder(settings.folder / "layers")
        exported = export_image(buildah, reference, layers=layers)
    send(exported, layers=layers, settings=settings)
    return reference
