"""The command that prints CRDs and the conditions page, and notices drift."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fleetward_api.crd.__main__ import main
from tests.support.kinds import CRDS

PAGE = CRDS.parent / "docs" / "conditions.md"


def test_the_committed_files_are_those_of_the_models() -> None:
    assert main(["--output", str(CRDS), "--conditions-doc", str(PAGE), "--check"]) == 0


def test_prints_then_checks_then_notices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "docs" / "conditions.md"
    asked = ["--output", str(tmp_path / "crds"), "--conditions-doc", str(page)]
    assert main([*asked, "--check"]) == 1
    assert main(asked) == 0
    assert main([*asked, "--check"]) == 0
    changed = tmp_path / "crds" / "fleetward.io_tenants.yaml"
    changed.write_text(changed.read_text() + "# edited\n")
    capsys.readouterr()
    assert main([*asked, "--check"]) == 1
    assert f"{changed} differs" in capsys.readouterr().err


def test_refuses_to_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "--output" in capsys.readouterr().err


def test_the_printed_text_is_plain_yaml(tmp_path: Path) -> None:
    main(["--output", str(tmp_path)])
    for file in tmp_path.glob("*.yaml"):
        document = yaml.safe_load(file.read_text())
        assert document["kind"] == "CustomResourceDefinition"
        assert file.name == f"fleetward.io_{document['spec']['names']['plural']}.yaml"
