"""Which images there are and what goes into each: tags by content hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e.images.settings import ImageSettings

REGISTRY = "fleetward.local"
"""Not a real host: images of these names can only come from the local build."""

IGNORED_FOLDERS = ("__pycache__",)
IGNORED_SUFFIXES = (".egg-info",)


@dataclass(frozen=True, slots=True)
class ImageRecipe:
    """One of our two images: its Dockerfile and what that copies, relative to the checkout."""

    name: str
    dockerfile: str
    locks: tuple[str, ...]
    distributions: tuple[str, ...]


OPERATOR = ImageRecipe(
    name="operator",
    dockerfile="operator/Dockerfile",
    locks=("requirements/build.txt", "requirements/operator.txt"),
    distributions=("crds", "operator"),
)
ENGINE = ImageRecipe(
    name="engine",
    dockerfile="engine-image/Dockerfile",
    locks=(
        "requirements/build.txt",
        "requirements/engine.txt",
        "requirements/torch.txt",
        "requirements/model.txt",
    ),
    distributions=("crds", "engine-image"),
)
RECIPES = (OPERATOR, ENGINE)


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """The references that a recipe's present inputs lead to."""

    recipe: ImageRecipe
    base: str
    deps: str
    image: str
    arguments: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ImageSet:
    """The references of the two images of one state of the checkout."""

    operator: str
    engine: str


def plan_image(
    recipe: ImageRecipe, *, checkout: Path, base: str, settings: ImageSettings
) -> ImagePlan:
    """Hash the inputs of ``recipe`` as they are now."""
    arguments: tuple[tuple[str, str], ...] = ()
    facts = {"base": base}
    if recipe is ENGINE:
        wheels = " ".join(torch_wheels(settings))
        arguments = (("TORCH", settings.torch), ("MODEL", settings.model), ("WHEELS", wheels))
    facts |= dict(arguments)
    deps_files = [checkout / recipe.dockerfile, *(checkout / lock for lock in recipe.locks)]
    deps = reference(f"{recipe.name}-deps", content_hash(deps_files, root=checkout, facts=facts))
    sources = list(source_files(checkout, recipe.distributions))
    image = reference(recipe.name, content_hash(sources, root=checkout, facts={"deps": deps}))
    return ImagePlan(recipe=recipe, base=base, deps=deps, image=image, arguments=arguments)


def torch_wheels(settings: ImageSettings) -> list[str]:
    """Names of the wheels that the build would take torch from."""
    if settings.wheels is None or settings.torch != "cpu":
        return []
    return sorted(file.name for file in settings.wheels.glob("torch-*.whl"))


def source_files(checkout: Path, distributions: Iterable[str]) -> Iterable[Path]:
    """What the Dockerfiles copy of our own code."""
    for distribution in distributions:
        yield checkout / distribution / "pyproject.toml"
        for file in (checkout / distribution / "src").rglob("*"):
            parts = file.relative_to(checkout).parts
            ignored = any(
                part in IGNORED_FOLDERS or part.endswith(IGNORED_SUFFIXES) for part in parts
            )
            if file.is_file() and not ignored:
                yield file


def content_hash(files: Iterable[Path], *, root: Path, facts: Mapping[str, str]) -> str:
    """SHA-256 over names, contents and facts, each length-prefixed; order does not matter."""
    digest = hashlib.sha256()
    entries = [(f"fact {name}", value.encode()) for name, value in facts.items()]
    entries += [(f"file {file.relative_to(root)}", file.read_bytes()) for file in files]
    for name, content in sorted(entries):
        for field in (name.encode(), content):
            digest.update(len(field).to_bytes(8, "big"))
            digest.update(field)
    return digest.hexdigest()


def reference(name: str, digest: str) -> str:
    """An image reference whose tag is the start of a content hash."""
    return f"{REGISTRY}/{name}:{digest[:16]}"
