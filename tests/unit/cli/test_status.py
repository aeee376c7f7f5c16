"""`fleetward status`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_answers import HttpAnswers, Reply, json_reply
from tests.unit.cli.conftest import GROUP, KINDS, Run


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


SERVICE: dict[str, Any] = {
    "metadata": {"namespace": "apps", "name": "chat"},
    "spec": {"model": {"name": "smollm2"}},
    "status": {
        "message": "1 of 2 engines take requests.",
        "replicaSummary": "1/2",
        "url": "http://gateway",
        "conditions": [
            condition("Ready", "False", "Unschedulable", "0/1 nodes: insufficient cpu"),
            condition("CachePolicyEnforced", "True", "Acked"),
        ],
    },
}
PURGE: dict[str, Any] = {
    "metadata": {"name": "forget"},
    "spec": {"tenant": "acme"},
    "status": {"phase": "Completed", "members": 3, "provedMembers": 3, "blocks": 41},
}


def show(cluster: HttpAnswers, kind: str, *items: dict[str, Any]) -> None:
    cluster.replies[f"{GROUP}/{kind}"] = json_reply({"items": list(items)})


def test_an_empty_cluster_says_what_to_do(run: Run, kubeconfig: Path) -> None:
    ended = run("status", "--kubeconfig", str(kubeconfig))
    assert ended.code == 0
    assert "apply an InferenceService" in ended.out


def test_tables_show_what_is_wrong_in_words(
    run: Run, cluster: HttpAnswers, kubeconfig: Path
) -> None:
    show(cluster, "inferenceservices", SERVICE)
    show(cluster, "cachepurges", PURGE)
    ended = run("status", "--kubeconfig", str(kubeconfig))
    assert ended.code == 0
    for words in (
        "apps/chat",
        "Unschedulable",
        "1/2",
        "1 of 2 engines take requests.",
        "Ready=False (Unschedulable): 0/1 nodes: insufficient cpu",
        "forget",
        "acme",
        "Completed",
        "3/3",
    ):
        assert words in ended.out
    assert "CachePolicyEnforced=" not in ended.out


def test_json_holds_conditions_and_counts(run: Run, cluster: HttpAnswers, kubeconfig: Path) -> None:
    show(cluster, "inferenceservices", SERVICE)
    show(cluster, "cachepurges", PURGE)
    ended = run("status", "--kubeconfig", str(kubeconfig), "-o", "json")
    found = json.loads(ended.out)
    assert set(found) == set(KINDS)
    (service,) = found["inferenceservices"]
    assert service["ready"] == "False"
    assert service["policyEnforced"] == "True"
    assert service["conditions"] == SERVICE["status"]["conditions"]
    assert found["cachepurges"][0]["proved"] == "3/3"


def test_a_namespace_hides_others_but_not_tenants(
    run: Run, cluster: HttpAnswers, kubeconfig: Path
) -> None:
    show(cluster, "inferenceservices", SERVICE)
    show(cluster, "tenants", {"metadata": {"name": "acme"}, "spec": {}})
    words = ["status", "--kubeconfig", str(kubeconfig), "-o", "json", "-n"]
    other = json.loads(run(*words, "elsewhere").out)
    assert other["inferenceservices"] == []
    assert [each["name"] for each in other["tenants"]] == ["acme"]
    assert len(json.loads(run(*words, "apps").out)["inferenceservices"]) == 1


def test_an_object_without_status_is_shown(
    run: Run, cluster: HttpAnswers, kubeconfig: Path
) -> None:
    show(cluster, "inferenceservices", {"metadata": {"namespace": "a", "name": "new"}})
    ended = run("status", "--kubeconfig", str(kubeconfig))
    assert ended.code == 0
    assert "a/new" in ended.out


def test_text_in_brackets_is_text(run: Run, cluster: HttpAnswers, kubeconfig: Path) -> None:
    status = {"message": "image [red]broken[/red] :smile:"}
    show(cluster, "tenants", {"metadata": {"name": "acme"}, "spec": {}, "status": status})
    assert "image [red]broken[/red] :smile:" in run("status", "--kubeconfig", str(kubeconfig)).out


def test_a_cluster_without_our_kinds_says_so(
    run: Run, cluster: HttpAnswers, kubeconfig: Path
) -> None:
    cluster.replies.clear()
    ended = run("status", "--kubeconfig", str(kubeconfig))
    assert ended.code == 1
    assert "install the chart first" in ended.err
    assert ended.out == ""


def test_a_refusal_is_told_in_the_servers_words(
    run: Run, cluster: HttpAnswers, kubeconfig: Path
) -> None:
    words = 'tenants.fleetward.io is forbidden: User "me" cannot list resource'
    refused = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": words}
    cluster.replies[f"{GROUP}/tenants"] = json_reply(refused, 403)
    ended = run("status", "--kubeconfig", str(kubeconfig))
    assert ended.code == 1
    assert words in ended.err


@pytest.mark.parametrize("reply", [Reply(200, b"<html>"), Reply(502, b"bad gateway")])
def test_nonsense_instead_of_an_answer_is_no_traceback(
    run: Run, cluster: HttpAnswers, kubeconfig: Path, reply: Reply
) -> None:
    cluster.replies[f"{GROUP}/tenants"] = reply
    ended = run("status", "--kubeconfig", str(kubeconfig))
    assert ended.code == 1
    assert ended.err.startswith("error: ")
    assert "Traceback" not in ended.err


def test_no_cluster_at_all_says_what_to_set(run: Run) -> None:
    ended = run("status")
    assert ended.code == 1
    assert "KUBECONFIG" in ended.err


def test_a_kubeconfig_that_is_not_there_is_named(run: Run, tmp_path: Path) -> None:
    ended = run("status", "--kubeconfig", str(tmp_path / "absent"))
    assert ended.code == 1
    assert "absent" in ended.err


@pytest.mark.parametrize("content", ["", "a: [", "[]", "word", "a: b"])
def test_a_file_that_is_no_kubeconfig_is_named(run: Run, tmp_path: Path, content: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(content)
    ended = run("status", "--kubeconfig", str(file))
    assert ended.code == 1
    assert f"error: cannot reach an API server through kubeconfig {file}: " in ended.err
