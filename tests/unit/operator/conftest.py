"""Goldens: `pytest tests/unit/operator --update-goldens` writes them anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

GOLDENS = Path(__file__).parent / "goldens"

Golden = Callable[[str, list[dict[str, Any]]], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="write golden files anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare manifests with a golden file of YAML documents."""

    def check(name: str, manifests: list[dict[str, Any]]) -> None:
        file = GOLDENS / f"{name}.yaml"
        if request.config.getoption("--update-goldens", default=False):
            file.write_text(yaml.safe_dump_all(manifests, sort_keys=False), encoding="utf-8")
        expected = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
        assert manifests == expected, f"{file.name} differs: --update-goldens rewrites it"

    return check
