"""Images that only tests run: ours, broken on purpose, or one build further."""

from __future__ import annotations

from pathlib import Path

from e2e.cluster.steps import Steps
from e2e.images.build import build_images
from e2e.images.buildah import open_buildah
from e2e.images.export import LayerFolder, export_image
from e2e.images.load import send
from e2e.images.plan import ImageSet
from e2e.images.settings import read_image_settings

_TESTS = Path(__file__).resolve().parents[1]


def image_without_removal() -> str:
    """Build and import the engine whose purge removes nothing; returns its reference."""
    engine = _present().engine
    return _derive(_TESTS / "faults/no_removal", engine, argument="ENGINE", suffix="no-removal")


def next_operator_image() -> str:
    """Build and import operator and gateway with one line changed; returns the reference."""
    operator = _present().operator
    return _derive(_TESTS / "builds/next", operator, argument="OPERATOR", suffix="next")


def _present() -> ImageSet:
    return build_images(steps=Steps(), settings=read_image_settings())


def _derive(folder: Path, base: str, *, argument: str, suffix: str) -> str:
    """Build `folder` on top of an image of ours, under that one's name and `suffix`."""
    settings = read_image_settings()
    reference = f"{base}-{suffix}"
    with open_buildah(settings) as buildah:
        buildah.build(folder, tag=reference, words=[f"--build-arg={argument}={base}"])
        layers = LayerFolder(settings.folder / "layers")
        exported = export_image(buildah, reference, layers=layers)
    send(exported, layers=layers, settings=settings)
    return reference
