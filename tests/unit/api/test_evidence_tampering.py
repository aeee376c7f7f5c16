"""Whatever is done to a file of evidence, the verifier says so and names the first bad record."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.canonical import canonical_bytes, digest
from fleetward_api.evidence import GENESIS, Outcome, verify_evidence
from fleetward_api.keys import SigningKey
from tests.support.purge_facts import (
    dead_of,
    evidence_of,
    member_of,
    receipt_record,
    unproved_of,
)

KEY = SigningKey.generate()
FINGERPRINT = KEY.verify_key.fingerprint
A, B, C, D = (SigningKey.generate() for _ in range(4))
MEMBERS = [member_of(*pair) for pair in (("a", A), ("b", B), ("c", C), ("d", D))]
OUTCOMES: list[Outcome] = [
    receipt_record("a", A),
    receipt_record("b", B),
    dead_of("c"),
    unproved_of("d"),
]
DATA = evidence_of(KEY, MEMBERS, OUTCOMES)
LINES = DATA.splitlines(keepends=True)
ROUNDS = 1500


def _seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311  # the same tampering on every run


def _first_bad(data: bytes) -> int | None:
    report = verify_evidence(data, key_fingerprint=FINGERPRINT)
    assert report.ok == (report.record is None) == (report.first_fault is None)
    return report.record


def test_the_untouched_file_is_good() -> None:
    assert _first_bad(DATA) is None
    assert len(LINES) == 10


def test_flipped_bytes_are_named() -> None:
    random_ = _seeded(20_240_601)
    starts = [sum(map(len, LINES[:n])) for n in range(len(LINES))]
    for _ in range(ROUNDS):
        at = random_.randrange(len(DATA))
        changed = bytearray(DATA)
        changed[at] ^= random_.randint(1, 255)
        assert _first_bad(bytes(changed)) == sum(start <= at for start in starts)


def test_every_part_of_the_last_record_counts() -> None:
    start = len(DATA) - len(LINES[-1])
    for at in range(start, len(DATA), 3):
        changed = bytearray(DATA)
        changed[at] ^= 1 << at % 8
        assert _first_bad(bytes(changed)) == 10


def test_inserted_and_removed_bytes_are_named() -> None:
    random_ = _seeded(7)
    starts = [sum(map(len, LINES[:n])) for n in range(len(LINES))]
    for _ in range(ROUNDS // 3):
        at = random_.randrange(len(DATA))
        record = sum(start <= at for start in starts)
        without = DATA[:at] + DATA[at + 1 :]
        assert _first_bad(without) == record
        extra = bytes([random_.randrange(256)])
        assert _first_bad(DATA[:at] + extra + DATA[at:]) in {record, record - 1} - {0}


@pytest.mark.parametrize("at", range(10))
def test_a_dropped_record_is_named_by_its_place(at: int) -> None:
    assert _first_bad(b"".join(LINES[:at] + LINES[at + 1 :])) == at + 1


@pytest.mark.parametrize("at", range(10))
def test_a_repeated_record_is_named(at: int) -> None:
    assert _first_bad(b"".join([*LINES[: at + 1], LINES[at], *LINES[at + 1 :]])) == at + 2


@given(st.permutations(range(10)))
def test_moved_records_are_named_by_the_first_place_that_differs(order: Sequence[int]) -> None:
    moved = b"".join(LINES[n] for n in order)
    wrong = [place for place, n in enumerate(order) if place != n]
    assert _first_bad(moved) == (wrong[0] + 1 if wrong else None)


def test_a_file_cut_anywhere_is_caught() -> None:
    random_ = _seeded(3)
    cuts = {random_.randrange(len(DATA)) for _ in range(ROUNDS // 3)}
    for cut in cuts | {0, len(DATA) - 1}:
        assert _first_bad(DATA[:cut]) == DATA[:cut].count(b"\n") + 1


@pytest.mark.parametrize("tail", [b"\n", b"{}\n", b" ", b"\0", LINES[-1], LINES[0]])
def test_nothing_may_follow_the_footer(tail: bytes) -> None:
    assert _first_bad(DATA + tail) == 11


def test_a_record_of_another_evidence_does_not_fit() -> None:
    other = evidence_of(KEY, MEMBERS, OUTCOMES, completed_at=5).splitlines(keepends=True)
    assert _first_bad(b"".join([*LINES[:9], other[9]])) is None
    larger = evidence_of(KEY, MEMBERS, [OUTCOMES[0], *map(dead_of, "bcd")]).splitlines(True)
    for at in range(6, 10):
        assert _first_bad(b"".join([*LINES[:at], larger[at], *LINES[at + 1 :]])) is not None


def _resigned(change: Callable[[list[dict[str, Any]]], None], *, first: int = 1) -> bytes:
    """The operator's own key lies: bodies changed, then numbered, chained and signed anew."""
    bodies = [json.loads(line)["payload"]["body"] for line in LINES]
    change(bodies)
    lines, previous = [], GENESIS
    for number, body in enumerate(bodies, start=first):
        payload = {"sequence": number, "previous": previous, "body": body}
        signature = KEY.sign(b"fleetward/evidence/v1\n" + canonical_bytes(payload)).hex()
        envelope = {"payload": payload, "keyId": KEY.verify_key.key_id, "signature": signature}
        lines.append(canonical_bytes(envelope))
        previous = digest(lines[-1])
    return b"".join(line + b"\n" for line in lines)


def test_signing_anew_what_was_not_changed_gives_the_same_file() -> None:
    assert _resigned(lambda _: None) == DATA


def _footer(**changes: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda bodies: bodies[-1].update(changes)


def _receipt(**changes: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda bodies: bodies[5]["receipt"]["payload"].update(changes)


def test_records_are_numbered_from_one() -> None:
    report = verify_evidence(_resigned(lambda _: None, first=2), key_fingerprint=FINGERPRINT)
    assert report.record == 1
    assert "numbered 2" in str(report.first_fault)


def test_a_file_without_its_last_newline_is_cut_short() -> None:
    report = verify_evidence(DATA[:-1], key_fingerprint=FINGERPRINT)
    assert report.record == 10
    assert "ends inside this record" in str(report.first_fault)


@pytest.mark.parametrize(
    ("change", "record", "words"),
    [
        (_footer(phase="Completed"), 10, "Completed with 1 things not shown"),
        (_footer(phase="Completed", notShown=[]), 9, "footer does not say: uid-d"),
        (_footer(notShown=[]), 9, "footer does not say: uid-d"),
        (_footer(notCovered=[]), 10, "answers: "),
        (_footer(phase="Done"), 10, "phase"),
        (lambda b: b[-1]["totals"].update(blocks=0), 10, "totals"),
        (lambda b: b[-1]["totals"].update(records=9), 10, "totals"),
        (lambda b: b[-1]["totals"].update(dead=2), 10, "totals"),
        (lambda b: b[-1]["notCovered"].pop(3), 10, "other-logs"),
        (_receipt(removed=8), 6, "signature does not hold"),
        (_receipt(podUid="uid-b"), 6, "names key|signed by|signature does not hold"),
        (_receipt(podUid="uid-z"), 6, "uid-z is not among the expected"),
        (lambda b: b[0].update(scopeDigest="0" * 64), 6, "another scope"),
        (lambda b: b[0].update(purgeUid="other"), 6, "for purge purge-uid-1"),
        (lambda b: b[0]["cut"].update(floor=4), 6, "below the cut's 4"),
        (lambda b: b[0]["cut"].update(floor=0), 1, "floor"),
        (lambda b: b[1]["binding"].update(podUid="uid-b"), 2, "another pod"),
        (lambda b: b[1].update(receiptKey=b[2]["receiptKey"]), 3, "key of another pod"),
        (lambda b: b[1].update(receiptKey=KEY.verify_key.to_b64()), 6, "signed by"),
        (lambda b: b.pop(8), 5, "uid-d has no receipt"),
        (lambda b: b.pop(4), 8, "uid-d is not among the expected"),
        (lambda b: b.insert(9, b[8]), 10, "two outcomes"),
        (lambda b: b.insert(9, b[0]), 10, "no place here"),
        (lambda b: b.insert(7, b.pop(4)), 8, "a member has no place here"),
        (lambda b: b[3].update(receiptKey="AA=="), 4, "public key"),
        (lambda b: b[3].update(certificateFingerprint="none"), 4, "certificate"),
        (lambda b: b.append(b[-1]), 11, "no place here"),
        (lambda b: b.pop(0), 1, "begin with a header"),
        (lambda b: b.pop(), 10, "without a footer"),
        (lambda b: b[7].update(words=""), 8, "words"),
        (lambda b: b[7].update(kind="asleep"), 8, "kind|tag"),
        (lambda b: b[7].update(more=1), 8, "more"),
    ],
)
def test_an_operator_that_lies_is_caught_too(
    change: Callable[[list[dict[str, Any]]], None], record: int, words: str
) -> None:
    report = verify_evidence(_resigned(change), key_fingerprint=FINGERPRINT)
    assert not report.ok
    assert report.first_fault is not None
    assert report.record == record, report.first_fault
    assert any(word in report.first_fault for word in words.split("|")), report.first_fault


@given(st.binary(max_size=400))
def test_noise_is_no_evidence(noise: bytes) -> None:
    report = verify_evidence(noise, key_fingerprint=FINGERPRINT)
    assert (report.ok, report.pinned, report.record) == (False, False, 1)


def test_a_record_longer_than_any_stack_is_refused() -> None:
    assert _first_bad(b"[" * 1_000_000 + b"\n") == 1
