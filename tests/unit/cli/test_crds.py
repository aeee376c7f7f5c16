"""`fleetward crds print`, and what the command line says without a command."""

from __future__ import annotations

import json

import yaml

from tests.unit.cli.conftest import Run


def test_four_definitions_are_printed(run: Run) -> None:
    documents = list(yaml.safe_load_all(run("crds", "print").out))
    assert sorted(each["spec"]["names"]["kind"] for each in documents) == [
        "CachePolicy",
        "CachePurge",
        "InferenceService",
        "Tenant",
    ]


def test_json_is_the_same_list(run: Run) -> None:
    documents = list(yaml.safe_load_all(run("crds", "print").out))
    assert json.loads(run("crds", "print", "-o", "json").out)["items"] == documents


def test_without_a_command_help_is_shown(run: Run) -> None:
    ended = run()
    assert ended.code == 2
    assert "evidence" in ended.out + ended.err


def test_an_unknown_command_is_wrong_usage(run: Run) -> None:
    assert run("frobnicate").code == 2
