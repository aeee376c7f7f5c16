"""Build what is missing of the two images."""

from __future__ import annotations

from pathlib import Path

from e2e.cluster.paths import CHECKOUT
from e2e.cluster.steps import Steps
from e2e.images.base import base_reference, build_base, ensure_programs
from e2e.images.buildah import Buildah, open_buildah
from e2e.images.plan import ENGINE, OPERATOR, RECIPES, REGISTRY, ImagePlan, ImageSet, plan_image
from e2e.images.settings import ImageSettings, read_image_settings


def build_images(
    *, steps: Steps, settings: ImageSettings | None = None, checkout: Path = CHECKOUT
) -> ImageSet:
    """Build what the storage lacks; returns the references of the present inputs."""
    chosen = settings or read_image_settings()
    plans = plan_images(settings=chosen, checkout=checkout)
    ensure_programs(chosen.machine.environment["PATH"], steps=steps)
    with open_buildah(chosen) as buildah:
        for plan in plans:
            build_image(buildah, plan, checkout=checkout, steps=steps)
        forget_older(buildah, plans)
    return image_set(plans)


def plan_images(*, settings: ImageSettings, checkout: Path = CHECKOUT) -> list[ImagePlan]:
    """What each recipe's present inputs lead to."""
    base = base_reference()
    return [
        plan_image(recipe, checkout=checkout, base=base, settings=settings) for recipe in RECIPES
    ]


def image_set(plans: list[ImagePlan]) -> ImageSet:
    """The references by part."""
    names = {plan.recipe.name: plan.image for plan in plans}
    return ImageSet(operator=names[OPERATOR.name], engine=names[ENGINE.name])


def build_image(buildah: Buildah, plan: ImagePlan, *, checkout: Path, steps: Steps) -> None:
    """Base, dependencies, our code: each only where the storage lacks it."""
    if buildah.exists(plan.image):
        return
    dockerfile = ["--file", str(checkout / plan.recipe.dockerfile)]
    # The code's stage starts from the base too, so it is needed even when the dependencies stand.
    build_base(buildah, steps=steps)
    arguments = [f"--build-arg=BASE={plan.base}"]
    arguments += [f"--build-arg={name}={value}" for name, value in plan.arguments]
    if not buildah.exists(plan.deps):
        with steps.step(f"{plan.recipe.name} image: dependencies"):
            words = [*dockerfile, *arguments, *bound_wheels(buildah.settings), "--target", "deps"]
            buildah.build(checkout, tag=plan.deps, words=words)
    with steps.step(f"{plan.recipe.name} image: our code"):
        stand_in = ["--build-context", f"deps=container-image://{plan.deps}"]
        words = [*dockerfile, *arguments, *stand_in]
        buildah.build(checkout, tag=plan.image, words=words, keep_blobs=True)


def bound_wheels(settings: ImageSettings) -> list[str]:
    """The wheel folder, lent to the builder."""
    return ["-v", f"{settings.wheels}:/wheels:ro"] if settings.wheels else []


def forget_older(buildah: Buildah, plans: list[ImagePlan]) -> None:
    """Drop images of other inputs: their layers are the bulk of the storage."""
    wanted = {name for plan in plans for name in (plan.base, plan.deps, plan.image)}
    older = [
        name
        for name in buildah.references()
        if name.startswith(f"{REGISTRY}/") and name not in wanted
    ]
    if older:
        buildah.run("rmi", "--force", *older)
