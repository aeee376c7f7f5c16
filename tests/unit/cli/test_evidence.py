"""`fleetward evidence`: a verdict for each state of the evidence, each with its exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.canonical import digest
from fleetward_api.evidence import chunk_evidence
from fleetward_api.keys import SigningKey
from fleetward_cli.evidence_source import join_chunks
from tests.support.http_answers import HttpAnswers, json_reply
from tests.support.purge_facts import evidence_of, member_of, receipt_record, unproved_of
from tests.unit.cli.conftest import GROUP, Run

OPERATOR = SigningKey.generate()
ENGINE = SigningKey.generate()
FINGERPRINT = OPERATOR.verify_key.fingerprint
MEMBERS = [member_of("pod-1", ENGINE)]
COMPLETED = evidence_of(OPERATOR, MEMBERS, [receipt_record("pod-1", ENGINE)])
INCOMPLETE = evidence_of(OPERATOR, MEMBERS, [unproved_of("pod-1")])
MAPS = "/api/v1/namespaces/fleetward-system/configmaps"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "evidence.jsonl"
    path.write_bytes(COMPLETED)
    return path


def config_maps(
    data: bytes, *, uid: str = "u1", created: str = "2026-01-01T00:00:00Z", limit: int = 900_000
) -> list[dict[str, Any]]:
    return [
        {
            "metadata": {
                "name": f"fleetward-evidence-{uid}-{number}",
                "creationTimestamp": created,
            },
            "data": {"evidence.jsonl": chunk.decode()},
        }
        for number, chunk in enumerate(chunk_evidence(data, limit))
    ]


def store(cluster: HttpAnswers, maps: list[dict[str, Any]], *, promised: str = "") -> None:
    cluster.replies[
        f"{MAPS}?labelSelector=fleetward.io/purge%3Dforget,app.kubernetes.io/name%3Dfleetward-evidence"
    ] = json_reply({"items": maps})
    if promised:
        purge = {"metadata": {"name": "forget"}, "status": {"evidenceDigest": promised}}
        cluster.replies[f"{GROUP}/cachepurges/forget"] = json_reply(purge)
    else:
        gone = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}
        cluster.replies[f"{GROUP}/cachepurges/forget"] = json_reply(gone, 404)


def test_genuine_evidence_of_a_completed_purge_is_0(run: Run, file: Path) -> None:
    ended = run("evidence", "verify", str(file), "--key", FINGERPRINT)
    assert ended.code == 0
    assert "signed by the pinned key" in ended.out
    assert digest(COMPLETED) in ended.out


def test_without_a_pinned_key_it_is_4_and_says_how_to_pin(run: Run, file: Path) -> None:
    ended = run("evidence", "verify", str(file))
    assert ended.code == 4
    assert "consistent with itself" in ended.out
    assert "fleetward evidence key" in ended.out


def test_another_key_is_3(run: Run, file: Path) -> None:
    other = SigningKey.generate().verify_key.fingerprint
    assert run("evidence", "verify", str(file), "--key", other).code == 3


def test_a_flipped_byte_is_3_and_its_record_is_named(run: Run, file: Path) -> None:
    lines = COMPLETED.splitlines(keepends=True)
    second = lines[1].replace(b"pod-1", b"pod-2", 1)
    file.write_bytes(b"".join([lines[0], second, *lines[2:]]))
    ended = run("evidence", "verify", str(file), "--key", FINGERPRINT)
    assert ended.code == 3
    assert "record 2" in ended.out


def test_genuine_evidence_that_says_incomplete_is_5(run: Run, file: Path) -> None:
    file.write_bytes(INCOMPLETE)
    ended = run("evidence", "verify", str(file), "--key", FINGERPRINT)
    assert ended.code == 5
    assert "Incomplete" in ended.out


def test_json_says_the_same(run: Run, file: Path) -> None:
    ended = run("evidence", "verify", str(file), "--key", FINGERPRINT, "-o", "json")
    report = json.loads(ended.out)
    assert (report["ok"], report["pinned"], report["phase"]) == (True, True, "Completed")
    assert report["exitCode"] == ended.code == 0


def test_a_file_that_is_not_there_is_1(run: Run, tmp_path: Path) -> None:
    ended = run("evidence", "verify", str(tmp_path / "none"), "--key", FINGERPRINT)
    assert ended.code == 1
    assert "none" in ended.err


@pytest.mark.parametrize("words", [[], ["--purge", "x", "file"]])
def test_a_file_or_a_purge_but_not_both(run: Run, words: list[str]) -> None:
    ended = run("evidence", "verify", *words)
    assert ended.code == 2
    assert "--purge" in ended.err


def test_a_purges_evidence_is_fetched_and_joined(
    run: Run, cluster: HttpAnswers, kubeconfig: Path, tmp_path: Path
) -> None:
    maps = config_maps(COMPLETED, limit=len(COMPLETED) // 5)
    assert len(maps) > 3
    store(cluster, maps[::-1], promised=digest(COMPLETED))
    saved = tmp_path / "saved.jsonl"
    words = ["evidence", "verify", "--purge", "forget", "--key", FINGERPRINT]
    ended = run(*words, "--kubeconfig", str(kubeconfig), "--save", str(saved))
    assert ended.code == 0, ended.out + ended.err
    assert saved.read_bytes() == COMPLETED


def test_evidence_outlives_its_purge(run: Run, cluster: HttpAnswers, kubeconfig: Path) -> None:
    store(cluster, config_maps(COMPLETED))
    words = ["evidence", "verify", "--purge", "forget", "--key", FINGERPRINT]
    assert run(*words, "--kubeconfig", str(kubeconfig)).code == 0


def test_genuine_evidence_in_the_wrong_place_is_3(
    run: Run, cluster: HttpAnswers, kubeconfig: Path
) -> None:
    store(cluster, config_maps(COMPLETED), promised=digest(INCOMPLETE))
    words = ["evidence", "verify", "--purge", "forget", "--key", FINGERPRINT]
    ended = run(*words, "--kubeconfig", str(kubeconfig))
    assert ended.code == 3
    assert "the purge's status names evidence" in ended.out


def test_no_evidence_is_1_and_says_where_it_looked(
    run: Run, cluster: HttpAnswers, kubeconfig: Path
) -> None:
    store(cluster, [])
    words = ["evidence", "verify", "--purge", "forget", "--kubeconfig", str(kubeconfig)]
    ended = run(*words)
    assert ended.code == 1
    assert "fleetward-system holds no evidence of a purge named forget" in ended.err


def test_a_lost_chunk_is_named(run: Run, cluster: HttpAnswers, kubeconfig: Path) -> None:
    maps = config_maps(COMPLETED, limit=len(COMPLETED) // 5)
    store(cluster, [maps[0], *maps[2:]])
    words = ["evidence", "verify", "--purge", "forget", "--kubeconfig", str(kubeconfig)]
    ended = run(*words)
    assert ended.code == 1
    assert "chunk 1 is missing" in ended.err


def test_of_two_purges_of_one_name_the_newest_counts() -> None:
    older = config_maps(INCOMPLETE, uid="u1", created="2026-01-01T00:00:00Z")
    newer = config_maps(COMPLETED, uid="u2", created="2026-02-01T00:00:00Z")
    assert join_chunks([*newer, *older]) == join_chunks([*older, *newer]) == COMPLETED


@given(
    st.integers(min_value=len(COMPLETED) // 20, max_value=len(COMPLETED)),
    st.randoms(use_true_random=True),
)
def test_chunks_join_in_any_order(limit: int, random: Any) -> None:
    maps = config_maps(COMPLETED, limit=limit)
    random.shuffle(maps)
    assert join_chunks(maps) == COMPLETED


def test_the_operators_fingerprint_is_printed(
    run: Run, cluster: HttpAnswers, kubeconfig: Path
) -> None:
    trust = {"data": {"operator.pub": OPERATOR.verify_key.to_b64()}}
    cluster.replies[f"{MAPS}/fleetward-trust"] = json_reply(trust)
    ended = run("evidence", "key", "--kubeconfig", str(kubeconfig))
    assert ended.out.strip() == FINGERPRINT
    as_json = json.loads(run("evidence", "key", "--kubeconfig", str(kubeconfig), "-o", "json").out)
    assert as_json["keyId"] == OPERATOR.verify_key.key_id


@pytest.mark.parametrize("data", [{}, {"operator.pub": "!!!"}, {"operator.pub": "YWJj"}])
def test_a_damaged_key_is_no_traceback(
    run: Run, cluster: HttpAnswers, kubeconfig: Path, data: dict[str, str]
) -> None:
    cluster.replies[f"{MAPS}/fleetward-trust"] = json_reply({"data": data})
    ended = run("evidence", "key", "--kubeconfig", str(kubeconfig))
    assert ended.code == 1
    assert ended.err.startswith("error: ")


def test_an_operator_that_never_started_is_told(
    run: Run, cluster: HttpAnswers, kubeconfig: Path
) -> None:
    gone = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}
    cluster.replies[f"{MAPS}/fleetward-trust"] = json_reply(gone, 404)
    ended = run("evidence", "key", "--kubeconfig", str(kubeconfig))
    assert ended.code == 1
    assert "the operator makes it at its first start" in ended.err
