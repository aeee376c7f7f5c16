"""`fleetward cache purge`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.resources import CachePurge
from fleetward_cli import purge as command
from tests.support.http_answers import HttpAnswers, json_reply
from tests.unit.cli.conftest import GROUP, Run

NAME = "purge-acme-00000000"
PATH = f"{GROUP}/cachepurges"


def purge(phase: str | None = None, **status: Any) -> dict[str, Any]:
    """The object as the API server shows it."""
    spec = {"tenant": "acme", "reason": "asked to", "deadline": "1m"}
    found = {"metadata": {"name": NAME}, "spec": spec}
    return {**found, "status": {"phase": phase, **status}} if phase else found


COMPLETED = purge(
    "Completed",
    message="Gone everywhere.",
    members=3,
    provedMembers=3,
    widenedTo="tenant acme, all services",
    evidenceDigest="sha256:ab",
    evidenceConfigMaps=["fleetward-evidence-u-0"],
)


@pytest.fixture(autouse=True)
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _bytes: "00000000")


def ask(run: Run, kubeconfig: Path, *words: str) -> Any:
    options = ("--kubeconfig", str(kubeconfig), "--reason", "asked to")
    return run("cache", "purge", "acme", *options, *words)


def answer(cluster: HttpAnswers, ended: dict[str, Any]) -> None:
    cluster.replies[PATH] = json_reply(purge(), status=201)
    cluster.replies[f"{PATH}/{NAME}"] = json_reply(ended)


def test_it_is_followed_to_its_end_and_tells_where_the_evidence_is(
    run: Run, cluster: HttpAnswers, kubeconfig: Path
) -> None:
    answer(cluster, COMPLETED)
    ended = ask(run, kubeconfig, "--deadline", "1m", "--release-namespace", "fleet")
    assert ended.code == 0, ended.err
    assert cluster.bodies == [
        {
            "apiVersion": "fleetward.io/v1alpha1",
            "kind": "CachePurge",
            "metadata": {"name": NAME},
            "spec": {"tenant": "acme", "reason": "asked to", "deadline": "1m"},
        }
    ]
    assert ended.out.splitlines() == [
        f"cachepurge/{NAME} created",
        "Completed: 3 of 3 member(s) proved, widened to tenant acme, all services",
        "Gone everywhere.",
        "evidence: sha256:ab",
        "in namespace fleet: ConfigMap fleetward-evidence-u-0",
        f"check it: fleetward evidence verify --purge {NAME} --key FINGERPRINT",
    ]


def test_what_could_not_be_shown_is_told_and_is_no_success(
    run: Run, cluster: HttpAnswers, kubeconfig: Path
) -> None:
    left = [{"subject": "apps/chat-1", "reason": "it did not answer"}]
    answer(cluster, purge("Incomplete", message="One is unproved.", notCovered=left))
    ended = ask(run, kubeconfig)
    assert ended.code == 5
    assert "not shown: apps/chat-1: it did not answer" in ended.out
    told = json.loads(ask(run, kubeconfig, "-o", "json").out)
    assert (told["phase"], told["exitCode"], told["notCovered"]) == ("Incomplete", 5, left)


def test_it_can_be_left_to_itself(run: Run, cluster: HttpAnswers, kubeconfig: Path) -> None:
    answer(cluster, COMPLETED)
    ended = ask(run, kubeconfig, "--no-wait")
    assert (ended.code, ended.out) == (0, f"cachepurge/{NAME} created\n")
    assert json.loads(ask(run, kubeconfig, "--no-wait", "-o", "json").out)["phase"] == "Pending"


def test_a_dry_run_asks_nobody_and_prints_a_manifest(run: Run) -> None:
    words = ("--service-selector", "team=a, tier=1", "--refuse-widening", "--reason", "r")
    ended = run("cache", "purge", "acme", "--dry-run", *words)
    assert ended.code == 0, ended.err
    parsed = CachePurge.parse(json.loads(ended.out))
    assert parsed.spec.on_coarse_isolation == "Refuse"
    assert json.loads(ended.out)["spec"]["serviceSelector"] == {
        "matchLabels": {"team": "a", "tier": "1"}
    }


def test_the_finer_scopes_are_passed_on_for_the_api_server_to_judge(run: Run) -> None:
    for option, field in (
        ("--user", "user"),
        ("--permission-scope", "permissionScope"),
        ("--document-tag", "documentTag"),
    ):
        ended = run("cache", "purge", "acme", "--dry-run", "--reason", "r", option, "x")
        assert json.loads(ended.out)["spec"][field] == "x"


def test_a_refusal_is_told_in_the_api_servers_words(
    run: Run, cluster: HttpAnswers, kubeconfig: Path
) -> None:
    refusal = {"kind": "Status", "status": "Failure", "reason": "Invalid", "message": "no such x"}
    cluster.replies[PATH] = json_reply(refusal, status=422)
    ended = ask(run, kubeconfig)
    assert ended.code == 1
    assert "no such x" in ended.err


def test_one_that_is_deleted_meanwhile_is_told(
    run: Run, cluster: HttpAnswers, kubeconfig: Path
) -> None:
    cluster.replies[PATH] = json_reply(purge(), status=201)
    gone = {"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "not found"}
    cluster.replies[f"{PATH}/{NAME}"] = json_reply(gone, status=404)
    ended = ask(run, kubeconfig)
    assert ended.code == 1
    assert "was deleted before it ended" in ended.err


def test_an_operator_that_never_comes_is_told(
    run: Run, cluster: HttpAnswers, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "GRACE_S", -60.0)
    answer(cluster, purge("Fencing", members=2))
    ended = ask(run, kubeconfig)
    assert ended.code == 1
    assert "see that the operator runs" in ended.err


@pytest.mark.parametrize("text", ["a", "=b", "a==b", "a=b,", ""])
def test_a_selector_that_is_none_is_wrong_usage(run: Run, text: str) -> None:
    words = ("--dry-run", "--reason", "r", "--service-selector", text)
    assert run("cache", "purge", "acme", *words).code == 2


def test_why_must_be_said(run: Run) -> None:
    assert run("cache", "purge", "acme", "--dry-run").code == 2


@given(st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True))
def test_every_tenants_purge_gets_a_name_that_the_kind_takes(tenant: str) -> None:
    manifest = command.build_manifest({"tenant": tenant, "reason": "r"}, mark="0123abcd")
    CachePurge.parse(manifest)
