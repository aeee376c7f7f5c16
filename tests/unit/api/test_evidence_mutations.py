"""Promise 44: thousands of mutated evidence files, each caught, the first wrong record named."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from e2e.chaos.scale import is_full, seed
from e2e.figures.record import record
from fleetward_api.evidence import Outcome, evidence_head, verify_evidence
from fleetward_api.keys import SigningKey
from tests.support.evidence_mutations import MUTATIONS, Mutated, first_difference, mutate
from tests.support.purge_facts import (
    dead_of,
    evidence_of,
    header_of,
    member_of,
    receipt_record,
    unproved_of,
)

KEY = SigningKey.generate()
FINGERPRINT = KEY.verify_key.fingerprint
PODS = {name: SigningKey.generate() for name in "abcdef"}


def chain_of_files() -> list[bytes]:
    """Four evidences of one operator, each after the other; the last two are of one purge.

    Those two differ in nothing but their place in the chain and the time of their end: what a
    leader that died between its ConfigMaps and the head leaves beside what the next one stored.
    """
    files: list[bytes] = []
    stories: tuple[tuple[str, list[Outcome]], ...] = (
        ("abcd", [receipt_record("a", PODS["a"]), receipt_record("b", PODS["b"]), dead_of("c")]),
        ("ef", [receipt_record("e", PODS["e"])]),
        ("abe", [receipt_record(name, PODS[name]) for name in "ab"]),
        ("abe", [receipt_record(name, PODS[name]) for name in "ab"]),
    )
    for number, (names, outcomes) in enumerate(stories, start=1):
        before = {"previous": evidence_head(files[-1], sequence=number - 1)} if files else {}
        files.append(
            evidence_of(
                KEY,
                [member_of(name, PODS[name]) for name in names],
                [*outcomes, unproved_of(names[-1])],
                header=header_of(KEY, sequence=number, **before),
                completed_at=1_700_000_001_000 + number,
            )
        )
    return files


FILES = chain_of_files()


def is_caught(mutated: Mutated) -> bool:
    report = verify_evidence(mutated.data, key_fingerprint=FINGERPRINT)
    return not report.ok and report.record == mutated.record and bool(report.first_fault)


def test_every_mutated_file_is_caught_and_its_first_bad_record_named() -> None:
    rng = random.Random(seed())  # noqa: S311  # the same mutations on every run
    rounds = 10_000 if is_full() else 400
    kinds = list(MUTATIONS)
    made = [mutate(rng, FILES, kinds[number % len(kinds)]) for number in range(rounds)]
    missed = [one for one in made if not is_caught(one)]
    counts = Counter(one.kind for one in made)
    assert min(counts.values()) >= rounds // len(kinds)
    if is_full():
        detail = f"{len(made)} files, {len(counts)} kinds of mutation, {len(FILES)} evidences"
        record("evidence-mutations-missed", len(missed), detail)
    assert not missed, [(one.kind, one.record) for one in missed[:5]]


def test_the_files_that_were_mutated_are_good() -> None:
    for number, data in enumerate(FILES):
        before = FILES[number - 1] if number else None
        assert verify_evidence(data, key_fingerprint=FINGERPRINT, previous=before).ok


@pytest.mark.parametrize("number", range(1, len(FILES)))
def test_a_whole_file_in_the_place_of_another_is_caught(number: int) -> None:
    for before in FILES[: number - 1] + FILES[number:]:
        report = verify_evidence(FILES[number], key_fingerprint=FINGERPRINT, previous=before)
        assert (report.ok, report.record) == (False, 1)


def test_the_place_of_a_difference_is_told_without_the_verifier() -> None:
    assert first_difference(b"a\nb\n", b"a\nb\n") is None
    assert first_difference(b"a\nb\n", b"a\nc\n") == 2
    assert first_difference(b"a\nb\n", b"a\n") == 2
    assert first_difference(b"a\nb\n", b"a\nb\nb\n") == 3
