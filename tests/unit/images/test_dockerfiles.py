"""What the Dockerfiles promise: nothing of the builder in the image, our code last, not root."""

from __future__ import annotations

import pytest

from e2e.cluster.paths import CHECKOUT
from e2e.images.plan import RECIPES, ImageRecipe

Stages = dict[str, list[str]]


def read_stages(recipe: ImageRecipe) -> tuple[Stages, dict[str, str]]:
    """Instructions by stage, and what each stage stands on."""
    text = (CHECKOUT / recipe.dockerfile).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    stages: Stages = {}
    bases: dict[str, str] = {}
    current: list[str] = []
    for line in lines:
        words = line.split()
        if words[0] == "FROM":
            current = stages.setdefault(words[3], [])
            bases[words[3]] = words[1]
        else:
            current.append(" ".join(words))
    return stages, bases


@pytest.fixture(params=RECIPES, ids=lambda recipe: recipe.name)
def recipe(request: pytest.FixtureRequest) -> ImageRecipe:
    found = request.param
    assert isinstance(found, ImageRecipe)
    return found


def test_the_last_stage_runs_nothing_and_holds_our_code_alone(recipe: ImageRecipe) -> None:
    stages, bases = read_stages(recipe)
    assert list(stages)[-1] == "final"
    assert bases["final"] == "deps"
    copies = [line for line in stages["final"] if line.startswith("COPY")]
    assert copies == ["COPY --from=app /app /opt/fleetward"]
    assert not [line for line in stages["final"] if line.startswith(("RUN", "ADD"))]


def test_dependencies_start_from_nothing_and_take_finished_folders(recipe: ImageRecipe) -> None:
    stages, bases = read_stages(recipe)
    assert bases["deps"] == "scratch"
    assert all(line.startswith("COPY --from=") for line in stages["deps"])
    assert not [line for line in stages["deps"] if "--from=tools" in line or "/tools" in line]


def test_the_process_is_not_root(recipe: ImageRecipe) -> None:
    stages, _ = read_stages(recipe)
    assert "USER 65532:65532" in stages["final"]


def test_everything_from_an_index_is_pinned_by_hash_but_torch(recipe: ImageRecipe) -> None:
    stages, _ = read_stages(recipe)
    installs = [
        command
        for lines in stages.values()
        for line in lines
        for command in line.split(" && ")
        if "pip" in command and " install " in command and "--no-index" not in command
    ]
    assert installs
    for command in installs:
        assert "--require-hashes" in command or "/locks/torch.txt" in command, command


def test_the_demo_model_is_a_layer_of_its_own() -> None:
    stages, _ = read_stages(RECIPES[1])
    assert stages["deps"][-1] == "COPY --from=model /opt/model /opt/model"
    assert "ARG MODEL=demo" in stages["model"]


def test_no_certificate_or_package_setting_is_baked_in(recipe: ImageRecipe) -> None:
    stages, _ = read_stages(recipe)
    for line in stages["deps"] + stages["final"]:
        assert "PIP_" not in line
        assert "certs" not in line
