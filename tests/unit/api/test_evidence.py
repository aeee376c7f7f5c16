"""Purge evidence: what it says, and what makes none."""

from __future__ import annotations

from typing import Any

import pytest

from fleetward_api.canonical import digest
from fleetward_api.errors import EvidenceError
from fleetward_api.evidence import (
    CONSISTENT,
    GENESIS,
    STANDARD_NOT_COVERED,
    ChainHead,
    Dead,
    Member,
    Outcome,
    chunk_evidence,
    evidence_head,
    receipt_fault,
    verify_evidence,
)
from fleetward_api.keys import SigningKey
from fleetward_api.receipt import RECEIPT_DOMAIN, TierCounts
from fleetward_api.signed import sign
from tests.support.purge_facts import (
    binding_of,
    dead_of,
    evidence_of,
    header_of,
    member_of,
    receipt_of,
    receipt_record,
    unproved_of,
)

KEY = SigningKey.generate()
FINGERPRINT = KEY.verify_key.fingerprint
A, B = SigningKey.generate(), SigningKey.generate()
MEMBERS = [member_of("a", A), member_of("b", B, member="gateway"), member_of("c", KEY)]
OUTCOMES: list[Outcome] = [receipt_record("a", A), receipt_record("b", B), dead_of("c")]


def test_a_purge_that_shows_everything_is_completed() -> None:
    report = verify_evidence(evidence_of(KEY, MEMBERS, OUTCOMES), key_fingerprint=FINGERPRINT)
    assert report.ok
    assert report.pinned
    assert report.phase == "Completed"
    assert (report.first_fault, report.record) == (None, None)
    assert report.summary == (
        "purge purge-uid-1 (tenant) Completed: 3 members, 2 receipts, 1 dead, 0 unproved, "
        "14 blocks, 57344 bytes; signed by the pinned key"
    )


def test_without_a_pinned_key_it_is_only_consistent_with_itself() -> None:
    report = verify_evidence(evidence_of(KEY, MEMBERS, OUTCOMES), key_fingerprint=None)
    assert not report.ok
    assert not report.pinned
    assert report.first_fault is None
    assert CONSISTENT in report.summary
    assert report.phase == "Completed"


@pytest.mark.parametrize(
    "fingerprint",
    ["", "sha256:" + "0" * 64, FINGERPRINT.upper()],
    ids=["empty", "zeros", "upper-case"],
)
def test_another_pinned_key_is_refused_at_the_header(fingerprint: str) -> None:
    report = verify_evidence(evidence_of(KEY, MEMBERS, OUTCOMES), key_fingerprint=fingerprint)
    assert (report.ok, report.pinned, report.record) == (False, False, 1)
    assert FINGERPRINT in str(report.first_fault)


def test_a_whole_file_signed_by_somebody_else_is_consistent_and_not_ok() -> None:
    forger = SigningKey.generate()
    forged = evidence_of(forger, MEMBERS, OUTCOMES, header=header_of(forger))
    assert verify_evidence(forged, key_fingerprint=None).first_fault is None
    assert verify_evidence(forged, key_fingerprint=FINGERPRINT).record == 1


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (unproved_of("a"), "uid-a: node worker-3 is unreachable"),
        (receipt_record("a", A, removed=6), "uid-a: inserted minus evicted is 7"),
        (receipt_record("a", A, probe_hits=2), "uid-a: 2 of 7 probes still hit"),
        (receipt_record("a", A, recount=1), "uid-a: a recount still found 1"),
    ],
)
def test_what_cannot_be_shown_makes_it_incomplete_and_is_listed(
    outcome: Outcome, words: str
) -> None:
    data = evidence_of(KEY, MEMBERS, [outcome, *OUTCOMES[1:]])
    report = verify_evidence(data, key_fingerprint=FINGERPRINT)
    assert report.ok
    assert report.phase == "Incomplete"
    assert words.encode() in data.splitlines()[-1]


def test_the_operator_may_add_what_it_could_not_show() -> None:
    data = evidence_of(KEY, MEMBERS, OUTCOMES, not_shown=["the deadline passed"])
    assert verify_evidence(data, key_fingerprint=FINGERPRINT).phase == "Incomplete"


def test_a_fleet_without_members_completes_with_zeros() -> None:
    report = verify_evidence(evidence_of(KEY, [], []), key_fingerprint=FINGERPRINT)
    assert report.ok
    assert "0 members, 0 receipts" in report.summary


def test_every_standing_limit_is_listed() -> None:
    last = evidence_of(KEY, MEMBERS, OUTCOMES, not_covered=["logs: own"]).splitlines()[-1]
    for item in (*STANDARD_NOT_COVERED, "logs: own"):
        assert item.encode() in last


def test_blocks_that_were_only_dropped_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    left = TierCounts(tier="device", blocks=5, bytes=5 * 4096, method="dropped")
    tiers = (TierCounts(tier="index", blocks=7, method="dropped"), left)
    outcomes = [receipt_record("a", A, tiers=tiers), *OUTCOMES[1:]]
    data = evidence_of(KEY, MEMBERS, outcomes)
    report = verify_evidence(data, key_fingerprint=FINGERPRINT)
    assert (report.ok, report.phase) == (True, "Completed")
    assert b"not-overwritten: 5 blocks" in data.splitlines()[-1]
    assert b"not-overwritten" not in evidence_of(KEY, MEMBERS, OUTCOMES)
    monkeypatch.setattr("fleetward_api.evidence.left_behind", lambda _outcomes: ())
    with pytest.raises(EvidenceError, match="does not list as not covered: not-overwritten"):
        evidence_of(KEY, MEMBERS, outcomes)


def test_a_pod_that_was_never_admitted_may_be_dead_but_sign_nothing() -> None:
    bare = Member(member="engine", pod_uid="uid-a", pod_name="a")
    data = evidence_of(KEY, [bare], [dead_of("a")])
    assert verify_evidence(data, key_fingerprint=FINGERPRINT).phase == "Completed"
    with pytest.raises(EvidenceError, match="never admitted"):
        evidence_of(KEY, [bare], [receipt_record("a", A)])


CONTRADICTIONS: list[tuple[list[Member], list[Outcome], str]] = [
    (MEMBERS, OUTCOMES[:2], "uid-c has no receipt"),
    (MEMBERS[:2], OUTCOMES, "uid-c is not among the expected"),
    (MEMBERS, [*OUTCOMES, dead_of("c")], "uid-c has two outcomes"),
    (MEMBERS, [*OUTCOMES[:2], unproved_of("c"), dead_of("c")], "uid-c has two outcomes"),
    ([*MEMBERS, MEMBERS[0]], OUTCOMES, "uid-a is expected twice"),
    ([member_of("a", A), member_of("b", A)], OUTCOMES[:1], "receipt key of another pod"),
    (MEMBERS, [receipt_record("a", B), *OUTCOMES[1:]], "signed by"),
    (MEMBERS, [receipt_record("a", A, purge_uid="other"), *OUTCOMES[1:]], "purge other"),
    (MEMBERS, [receipt_record("a", A, scope_digest="0" * 64), *OUTCOMES[1:]], "another scope"),
    (MEMBERS, [receipt_record("a", A, floor=2), *OUTCOMES[1:]], "below the cut's 3"),
    (
        MEMBERS,
        [receipt_record("a", A, key_id=B.verify_key.key_id), *OUTCOMES[1:]],
        "names key",
    ),
    (
        [member_of("a", A, binding=binding_of("a", pod_uid="uid-z"))],
        OUTCOMES[:1],
        "names another pod",
    ),
    ([member_of("a", A, binding=binding_of("a", pod_name="z"))], OUTCOMES[:1], "another pod"),
    ([member_of("a", A, binding=binding_of("a", audience="api"))], OUTCOMES[:1], "audience api"),
    ([member_of("a", A, binding=None)], [dead_of("a")], "no token review"),
    ([member_of("a", A, receipt_key="!!")], OUTCOMES[:1], "not base64"),
]


@pytest.mark.parametrize(("members", "outcomes", "words"), CONTRADICTIONS)
def test_facts_that_contradict_each_other_make_no_evidence(
    members: list[Member], outcomes: list[Outcome], words: str
) -> None:
    with pytest.raises(EvidenceError, match=words):
        evidence_of(KEY, members, outcomes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"operator_key": A.verify_key.to_b64()}, "pinned is"),
        ({"operator_key": "x"}, "operator's key"),
        ({"wire_version": 2}, "version 2"),
        ({"sequence": 2}, "one above"),
        ({"sequence": 5, "previous": ChainHead(sequence=4, digest=GENESIS)}, "genesis"),
        ({"previous": ChainHead(sequence=0, digest=digest(b"x"))}, "genesis"),
    ],
)
def test_a_header_that_cannot_be_makes_no_evidence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(EvidenceError, match=words):
        evidence_of(KEY, MEMBERS, OUTCOMES, header=header_of(KEY, **changes))


def test_evidence_follows_the_evidence_before_it() -> None:
    first = evidence_of(KEY, MEMBERS, OUTCOMES)
    header = header_of(KEY, sequence=2, previous=evidence_head(first, sequence=1))
    second = evidence_of(KEY, [], [], header=header)
    assert verify_evidence(second, key_fingerprint=FINGERPRINT, previous=first).ok
    other = evidence_of(KEY, MEMBERS, OUTCOMES, completed_at=7)
    report = verify_evidence(second, key_fingerprint=FINGERPRINT, previous=other)
    assert (report.ok, report.record) == (False, 1)


def test_the_operator_can_judge_a_receipt_before_it_builds() -> None:
    signed = sign(receipt_of("a", A), A, domain=RECEIPT_DOMAIN)
    assert receipt_fault(signed, member=MEMBERS[0], header=header_of(KEY)) is None
    assert "key is pod uid-b" in str(
        receipt_fault(
            sign(receipt_of("a", B), B, domain=RECEIPT_DOMAIN),
            member=MEMBERS[1],
            header=header_of(KEY),
        )
    )


@pytest.mark.parametrize("limit", [1, 7, 1000, 1500, 10**6])
def test_chunks_join_to_the_same_bytes(limit: int) -> None:
    data = evidence_of(KEY, MEMBERS, OUTCOMES)
    chunks = chunk_evidence(data, limit)
    assert b"".join(chunks) == data
    assert all(0 < len(chunk) <= limit for chunk in chunks)
    longest = max(map(len, data.splitlines(keepends=True)))
    if limit >= longest:
        assert all(chunk.endswith(b"\n") for chunk in chunks)


def test_no_bytes_make_no_chunks_and_a_chunk_holds_something() -> None:
    assert chunk_evidence(b"") == []
    with pytest.raises(EvidenceError):
        chunk_evidence(b"x", 0)


def test_a_large_fleet_is_verified_and_fits_its_chunks() -> None:
    keys = [SigningKey.generate() for _ in range(120)]
    members = [member_of(f"pod-{n}", key) for n, key in enumerate(keys)]
    outcomes: list[Outcome] = [receipt_record(f"pod-{n}", key) for n, key in enumerate(keys)]
    data = evidence_of(KEY, members, outcomes)
    chunks = chunk_evidence(data, 100_000)
    assert len(chunks) > 1
    assert verify_evidence(b"".join(chunks), key_fingerprint=FINGERPRINT).ok
    for missing in range(len(chunks)):
        rest = b"".join(chunks[:missing] + chunks[missing + 1 :])
        assert not verify_evidence(rest, key_fingerprint=FINGERPRINT).ok


def test_huge_and_foreign_values_pass_through() -> None:
    largest = 2**63 - 1
    outcome = receipt_record("a", A, inserted=largest, evicted=largest - 7, finished_at=largest)
    words = Dead(pod_uid="uid-c", words="завершён \U0001f480 \u2028\u0085 end", at=0)
    data = evidence_of(KEY, MEMBERS, [outcome, OUTCOMES[1], words])
    assert verify_evidence(data, key_fingerprint=FINGERPRINT).phase == "Completed"
