"""`fleetward cache ls`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleetward_cli.cache import amount
from tests.support.http_answers import HttpAnswers, json_reply
from tests.unit.cli.conftest import GROUP, Run


def service(name: str, *holdings: dict[str, Any], **report: Any) -> dict[str, Any]:
    told = {"observedAt": "2026-01-01T12:00:00Z", "holdings": list(holdings), **report}
    return {
        "metadata": {"namespace": "apps", "name": name},
        "status": {"kvCache": told} if holdings else {},
    }


A = {"tenant": "acme", "blocks": 30, "bytes": 3 << 20, "hits": 7, "oldest": "2026-01-01T11:00:00Z"}
B = {"tenant": "beta", "retentionClass": "short", "blocks": 5, "bytes": 500, "hits": 0}
B |= {"hostBlocks": 2, "hostBytes": 200}


@pytest.fixture
def services(cluster: HttpAnswers) -> None:
    items = [service("chat", B, A, otherBlocks=3), service("idle"), service("code", A)]
    cluster.replies[f"{GROUP}/inferenceservices"] = json_reply({"items": items})


@pytest.mark.usefixtures("services")
def test_a_table_tells_tenants_classes_and_since_when(run: Run, kubeconfig: Path) -> None:
    ended = run("cache", "ls", "--kubeconfig", str(kubeconfig))
    assert ended.code == 0
    lines = [line.split() for line in ended.out.splitlines()]
    assert " ".join(lines[1]) == "TENANT CLASS SERVICE BLOCKS BYTES HOST HITS OLDEST AS OF"
    assert [line[0] for line in lines[2:]] == ["(others)", "acme", "acme", "beta"]
    assert lines[3] == [
        "acme", "-", "apps/chat", "30", "3.0", "MiB", "-", "7",
        "2026-01-01T11:00:00Z", "2026-01-01T12:00:00Z",
    ]  # fmt: skip
    assert lines[5][:2] == ["beta", "short"]
    assert lines[5][3:9] == ["5", "500", "B", "2", "(200", "B)"]


@pytest.mark.usefixtures("services")
def test_json_can_be_narrowed(run: Run, kubeconfig: Path) -> None:
    options = ("--kubeconfig", str(kubeconfig), "-o", "json")
    found = json.loads(run("cache", "ls", "--tenant", "beta", *options).out)
    assert [(row["tenant"], row["retentionClass"], row["blocks"]) for row in found] == [
        ("beta", "short", 5)
    ]
    assert json.loads(run("cache", "ls", "-n", "elsewhere", *options).out) == []


def test_an_empty_cache_is_said_to_be_one(run: Run, cluster: HttpAnswers, kubeconfig: Path) -> None:
    cluster.replies[f"{GROUP}/inferenceservices"] = json_reply({"items": [service("idle")]})
    assert "no tenant" in run("cache", "ls", "--kubeconfig", str(kubeconfig)).out


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 << 20, "1.5 GiB"),
        (5 << 50, "5120.0 TiB"),
    ],
)
def test_amounts_are_for_people(size: int, words: str) -> None:
    assert amount(size) == words
