"""Tags by content: the same inputs give the same tag, any other input another one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.cluster.errors import ClusterError
from e2e.cluster.paths import CHECKOUT
from e2e.images.plan import (
    ENGINE,
    OPERATOR,
    RECIPES,
    ImagePlan,
    ImageRecipe,
    content_hash,
    plan_image,
    source_files,
)
from e2e.images.settings import ImageSettings, read_image_settings

BASE = "fleetward.local/base:0"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The inputs of both images, small."""
    files = {recipe.dockerfile for recipe in RECIPES}
    files |= {lock for recipe in RECIPES for lock in recipe.locks}
    for distribution in ("crds", "operator", "engine-image"):
        files |= {f"{distribution}/pyproject.toml", f"{distribution}/src/package/code.py"}
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


def settings_of(**environ: str) -> ImageSettings:
    return read_image_settings({"HOME": "/nonexistent", "PATH": "/usr/bin", **environ})


def plan(recipe: ImageRecipe, checkout: Path, **environ: str) -> ImagePlan:
    return plan_image(recipe, checkout=checkout, base=BASE, settings=settings_of(**environ))


def test_the_same_inputs_give_the_same_tags(checkout: Path, tmp_path_factory: object) -> None:
    copy = checkout.with_name(checkout.name + "-copy")
    shutil.copytree(checkout, copy)
    for recipe in RECIPES:
        assert plan(recipe, checkout) == plan(recipe, copy)


@pytest.mark.parametrize(
    ("changed", "operator", "engine"),
    [
        ("operator/src/package/code.py", "image", ""),
        ("engine-image/src/package/code.py", "", "image"),
        ("crds/src/package/code.py", "image", "image"),
        ("operator/pyproject.toml", "image", ""),
        ("operator/Dockerfile", "deps image", ""),
        ("engine-image/Dockerfile", "", "deps image"),
        ("requirements/operator.txt", "deps image", ""),
        ("requirements/engine.txt", "", "deps image"),
        ("requirements/torch.txt", "", "deps image"),
        ("requirements/model.txt", "", "deps image"),
        ("requirements/build.txt", "deps image", "deps image"),
    ],
)
def test_a_change_reaches_the_images_that_hold_it(
    checkout: Path, changed: str, operator: str, engine: str
) -> None:
    before = {recipe.name: plan(recipe, checkout) for recipe in RECIPES}
    (checkout / changed).write_text("another content")
    for recipe, expected in ((OPERATOR, operator), (ENGINE, engine)):
        old, new = before[recipe.name], plan(recipe, checkout)
        moved = [part for part in ("deps", "image") if getattr(old, part) != getattr(new, part)]
        assert " ".join(moved) == expected


def test_what_python_leaves_behind_changes_nothing(checkout: Path) -> None:
    before = plan(OPERATOR, checkout)
    for leftover in ("package/__pycache__/code.pyc", "package.egg-info/PKG-INFO"):
        path = checkout / "operator/src" / leftover
        path.parent.mkdir(parents=True)
        path.write_text("noise")
    assert plan(OPERATOR, checkout) == before


@pytest.mark.parametrize(
    "environ", [{"FLEETWARD_TORCH": "cuda"}, {"FLEETWARD_IMAGE_MODEL": "none"}]
)
def test_build_arguments_are_inputs_of_the_engine_only(
    checkout: Path, environ: dict[str, str]
) -> None:
    assert plan(ENGINE, checkout).deps != plan(ENGINE, checkout, **environ).deps
    assert plan(OPERATOR, checkout) == plan(OPERATOR, checkout, **environ)


def test_the_wheel_is_an_input_by_name(checkout: Path, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    empty = plan(ENGINE, checkout, FLEETWARD_WHEELS=str(wheels))
    assert empty.deps == plan(ENGINE, checkout).deps
    (wheels / "torch-9.9-cp311-none-any.whl").touch()
    with_wheel = plan(ENGINE, checkout, FLEETWARD_WHEELS=str(wheels))
    assert with_wheel.deps != empty.deps
    assert ("WHEELS", "torch-9.9-cp311-none-any.whl") in with_wheel.arguments


def test_another_base_is_another_image(checkout: Path) -> None:
    other = plan_image(OPERATOR, checkout=checkout, base="other:1", settings=settings_of())
    assert other.deps != plan(OPERATOR, checkout).deps


@given(
    st.dictionaries(st.text(alphabet="abc/.", min_size=1), st.text(max_size=8), max_size=5),
    st.dictionaries(st.text(alphabet="abc/.", min_size=1), st.text(max_size=8), max_size=5),
)
def test_different_facts_never_meet(one: dict[str, str], other: dict[str, str]) -> None:
    same = content_hash([], root=Path(), facts=one) == content_hash([], root=Path(), facts=other)
    assert same == (one == other)


def test_order_does_not_matter(checkout: Path) -> None:
    files = list(source_files(checkout, ("crds", "operator")))
    forward = content_hash(files, root=checkout, facts={})
    assert forward == content_hash(files[::-1], root=checkout, facts={})


def test_the_dockerfiles_copy_exactly_the_hashed_inputs() -> None:
    for recipe in RECIPES:
        copied = set()
        for line in (CHECKOUT / recipe.dockerfile).read_text().splitlines():
            if line.startswith("COPY ") and "--from=" not in line:
                copied.update(line.split()[1:-1])
        sources = {f"{name}/src" for name in recipe.distributions}
        projects = {f"{name}/pyproject.toml" for name in recipe.distributions}
        assert copied == {*recipe.locks, *sources, *projects}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FLEETWARD_TORCH", "rocm"),
        ("FLEETWARD_IMAGE_MODEL", "huge"),
        ("FLEETWARD_WHEELS", "/nonexistent/wheels"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(name: str, value: str) -> None:
    with pytest.raises(ClusterError, match=name):
        settings_of(**{name: value})
