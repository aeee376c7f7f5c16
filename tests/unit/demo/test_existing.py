"""`make up CLUSTER=existing`: what it refuses, and the commands that follow from what was asked."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from e2e.demo.existing import (
    Asked,
    Image,
    Refused,
    choose_cluster,
    helm_words,
    parse_image,
    present_images,
    read_asked,
    removal,
    told_left,
)
from e2e.images.plan import ImageSet
from e2e.images.push import target_of
from tests.support.chart import CHECKOUT, Chart, find_chart, named, pod_specs

DIGEST = "sha256:" + "a" * 64
OPERATOR = Image("reg.example/team/operator", "aa", DIGEST)
ENGINE = Image("reg.example/team/engine", "bb", DIGEST)


@pytest.fixture(scope="module")
def chart() -> Chart:
    return find_chart()


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, "REGISTRY=… builds and pushes them"),
        ({"REGISTRY": "a/b", "IMAGES": "present"}, "give one of them"),
        ({"IMAGES": "there"}, "the one word it takes is `present`"),
        ({"REGISTRY": "https://reg.example/team"}, "without a scheme"),
        ({"REGISTRY": "reg.example/Team"}, "capital letters"),
        ({"REGISTRY": "reg.example/team:1"}, "REGISTRY is"),
        ({"REGISTRY": "a/b", "ENGINE_IMAGE": "x:1"}, "go with IMAGES=present"),
        ({"IMAGES": "present", "OPERATOR_IMAGE": "operator"}, "no image reference"),
        ({"IMAGES": "present", "OPERATOR_IMAGE": "operator@md5:1"}, "no image reference"),
        ({"IMAGES": "present", "GATEWAY_URL": "gw.example"}, "must begin with http"),
        ({"IMAGES": "present", "VALUES": "/no/such/file"}, "which is no file"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_done(
    environ: dict[str, str], words: str
) -> None:
    with pytest.raises(Refused, match=words):
        read_asked(environ)


def test_a_cluster_of_another_name_is_refused() -> None:
    assert (choose_cluster(""), choose_cluster("existing")) == ("local", "existing")
    with pytest.raises(Refused, match="CLUSTER is 'prod'"):
        choose_cluster("prod")


def test_what_was_asked_is_read(tmp_path: Path) -> None:
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for file in files:
        file.touch()
    environ = {
        "REGISTRY": "reg.example:5000/team/",
        "VALUES": ",".join(map(str, files)),
        "GATEWAY_URL": "https://gw.example/",
    }
    assert read_asked(environ) == Asked(
        registry="reg.example:5000/team", values=tuple(files), gateway_url="https://gw.example"
    )


@pytest.mark.parametrize(
    ("name", "image"),
    [
        ("fleetward.local/operator:ab", Image("fleetward.local/operator", "ab")),
        ("reg.example:5000/a/b:1", Image("reg.example:5000/a/b", "1")),
        (f"reg.example:5000/a/b@{DIGEST}", Image("reg.example:5000/a/b", "", DIGEST)),
        (f"a:1@{DIGEST}", Image("a", "1", DIGEST)),
    ],
)
def test_references_are_taken_apart(name: str, image: Image) -> None:
    assert parse_image(name) == image


def test_a_host_with_a_port_is_no_tag() -> None:
    with pytest.raises(Refused):
        parse_image("reg.example:5000/a/b")


def test_present_images_are_the_local_builds_unless_named() -> None:
    built = ImageSet(operator="fleetward.local/operator:1", engine="fleetward.local/engine:2")
    operator, engine = present_images(Asked(engine_image="other/engine:3"), built)
    assert (operator.reference, engine.reference) == (built.operator, "other/engine:3")


def test_images_keep_their_names_and_tags_in_the_registry() -> None:
    pushed = target_of("fleetward.local/operator:ab12", registry="reg.example:5000/team")
    assert pushed == ("reg.example:5000/team/operator", "ab12")


def words(asked: Asked, **images: Image) -> list[str]:
    found = {"operator": OPERATOR, "engine": ENGINE, **images}
    return helm_words(CHECKOUT, asked, **found, release="fleetward", chart="charts/fleetward")


def test_the_chart_takes_what_helm_is_given(chart: Chart, tmp_path: Path) -> None:
    values = tmp_path / "mine.yaml"
    values.write_text(yaml.safe_dump({"gateway": {"replicas": 3}}))
    asked = Asked(registry="reg.example/team", values=(values,), gateway_url="https://gw.example")
    given = words(asked)
    assert given[:2] == ["upgrade", "fleetward"]
    assert "--install" in given
    settings = given[given.index("--values") :]
    rendered = chart.render(None, *settings)
    images = {c["image"] for _, spec in pod_specs(rendered) for c in spec["containers"]}
    assert images == {OPERATOR.reference}
    operator = dict(pod_specs(rendered))["fleetward-operator"]["containers"][0]
    environment = {each["name"]: each.get("value") for each in operator["env"]}
    assert environment["FLEETWARD_ENGINE_IMAGE"] == ENGINE.reference
    assert environment["FLEETWARD_GATEWAY_URL"] == "https://gw.example"
    assert named(rendered, "Deployment", "fleetward-gateway")["spec"]["replicas"] == 3


def test_a_numeric_tag_stays_a_string(chart: Chart) -> None:
    given = words(Asked(), operator=Image("a/operator", "0123"), engine=Image("a/engine", "1e3"))
    rendered = chart.render(None, *given[given.index("--history-max") + 2 :])
    images = {c["image"] for _, spec in pod_specs(rendered) for c in spec["containers"]}
    assert images == {"a/operator:0123"}


def test_tenants_go_before_their_engines_and_nothing_of_others_is_named() -> None:
    commands = removal(Path("examples/quickstart"), secrets=("tenant-a-key",))
    files = [Path(command[2]).name for command in commands if command[1] == "-f"]
    assert files == ["tenants.yaml", "inferenceservice.yaml", "cachepolicy.yaml"]
    assert all("--ignore-not-found" in command for command in commands)
    assert all("--all" not in command for command in commands)
    assert [command[1:3] for command in commands if command[1] != "-f"] == [
        ("namespace", "quickstart"),
        ("secret", "tenant-a-key"),
    ]
    assert (CHECKOUT / "examples/quickstart" / files[0]).exists()


def test_what_is_left_is_told_with_the_way_to_remove_it() -> None:
    lines = told_left(
        definitions=["tenants.fleetward.io"],
        namespaces=["fleetward-system"],
        services=["a/b"],
        tenants=["acme"],
    )
    text = "\n".join(lines)
    assert "1 definitions" in text
    assert "evidence of purges" in text
    assert "a/b" in text
    assert text.index("patch tenants.fleetward.io acme") < text.index("delete customresource")
    assert "kubectl delete customresourcedefinitions tenants.fleetward.io" in text
    assert told_left(definitions=[], namespaces=[], services=[], tenants=[]) == [
        "left: 0 definitions, so that no object of our kinds is lost"
    ]
