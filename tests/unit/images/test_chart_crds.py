"""CRDs as chart templates: the same document, kept on removal, with drift noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.cluster.paths import CHECKOUT
from e2e.images.chart_crds import chart_crd, differences, generate_chart_crds

CRD = "# A comment.\nkind: CustomResourceDefinition\nmetadata:\n  name: a.example\nspec: {}\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "crds").mkdir()
    (tmp_path / "crds" / "a.yaml").write_text(CRD)
    return tmp_path


def test_the_keep_policy_is_added_and_comments_go() -> None:
    template = chart_crd(CRD)
    assert (
        "metadata:\n  annotations:\n    helm.sh/resource-policy: keep\n  name: a.example"
        in template
    )
    assert "A comment" not in template


@given(st.text(alphabet="{} ab", max_size=30))
def test_no_braces_of_the_text_reach_helm_as_a_template(words: str) -> None:
    template = chart_crd(CRD + f"text: '{words}'\n")
    line = next(each for each in template.splitlines() if each.startswith("text:"))
    # What Helm renders from `{{ "{{" }}` is `{{`, so undoing that must give the text back.
    rendered = line.replace('{{ "{{" }}', "\0").replace('{{ "}}" }}', "\1")
    assert "{{" not in rendered
    assert "}}" not in rendered
    assert rendered.replace("\0", "{{").replace("\1", "}}") == f"text: '{words}'"


@pytest.mark.parametrize(
    "text",
    [
        "kind: X\n",
        "metadata:\nmetadata:\n",
        "metadata:\n  annotations: {a: b}\n",
    ],
)
def test_what_it_cannot_mark_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"metadata|annotations"):
        chart_crd(text)


def test_drift_is_found_and_mended(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate_chart_crds(checkout, check=True) == 1
    assert "a.yaml differs: run `make generate`" in capsys.readouterr().err
    assert generate_chart_crds(checkout, check=False) == 0
    assert generate_chart_crds(checkout, check=True) == 0
    (checkout / "crds" / "a.yaml").write_text(CRD + "more: 1\n")
    assert differences(checkout) == ["a.yaml"]


def test_the_template_of_a_kind_that_went_goes(checkout: Path) -> None:
    generate_chart_crds(checkout, check=False)
    (checkout / "crds" / "a.yaml").unlink()
    assert differences(checkout) == ["a.yaml"]
    generate_chart_crds(checkout, check=False)
    assert differences(checkout) == []


def test_the_repositorys_own_copies_are_current() -> None:
    assert differences(CHECKOUT) == []
