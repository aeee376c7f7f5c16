"""Offline check of purge evidence: names the first record that is wrong, and why.

Record n is line n. Nothing is trusted but the pinned fingerprint of the operator's key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from io import BytesIO
from typing import Final

from fleetward_api.canonical import digest, parse_model
from fleetward_api.chain_log import GENESIS
from fleetward_api.errors import CanonicalError, KeyMalformed, SignatureInvalid
from fleetward_api.evidence_records import (
    ADMISSION_AUDIENCE,
    EVIDENCE_DOMAIN,
    STANDARD_NOT_COVERED,
    Dead,
    EvidenceRecord,
    Footer,
    Header,
    Member,
    Outcome,
    Phase,
    ReceiptRecord,
    Unproved,
)
from fleetward_api.evidence_rules import (
    left_behind,
    not_shown_text,
    receipt_fault,
    totals_of,
)
from fleetward_api.keys import VerifyKey
from fleetward_api.receipt import Receipt, receipt_faults
from fleetward_api.signed import Signed, verify

CONSISTENT: Final = "consistent with itself"
_FINGERPRINT: Final = re.compile(r"sha256:[0-9a-f]{64}")
_STAGE: Final = {"header": 0, "member": 1, "receipt": 2, "dead": 2, "unproved": 2, "footer": 3}


@dataclass(frozen=True, slots=True)
class EvidenceReport:
    """What a file of evidence is worth.

    Attributes:
        ok: nothing is wrong *and* the operator's key is the pinned one.
        pinned: a fingerprint was given and the file is signed by that key.
        first_fault: the first thing that is wrong, or None.
        record: number (line, from 1) of the first bad record, or None.
        summary: one sentence for a person.
        phase: what the evidence says of its purge; None where it could not be read.
        digest: of the whole file, as the purge's status and the next evidence name it.
    """

    ok: bool
    pinned: bool
    first_fault: str | None
    record: int | None
    summary: str
    phase: Phase | None
    digest: str


class _Bad(Exception):  # a verdict that unwinds the reader, not an error of ours
    def __init__(self, record: int, why: str) -> None:
        super().__init__(why)
        self.record = record
        self.why = why


@dataclass(slots=True)
class _Reading:
    """What was read so far; `at` is the number of the record in hand."""

    fingerprint: str | None
    earlier: bytes | None
    at: int = 0
    last_digest: str = GENESIS
    stage: int = -1
    anchor: tuple[Header, VerifyKey] | None = None
    footer: Footer | None = None
    members: dict[str, tuple[int, Member]] = field(default_factory=dict)
    outcomes: dict[str, tuple[int, Outcome]] = field(default_factory=dict)
    receipt_keys: set[str] = field(default_factory=set)
    owed: list[tuple[int, str]] = field(default_factory=list)

    def bad(self, why: str) -> _Bad:
        return _Bad(self.at, why)


def verify_evidence(
    data: bytes, *, key_fingerprint: str | None, previous: bytes | None = None
) -> EvidenceReport:
    """Check signatures, chain, bindings, member set and arithmetic of one file of evidence.

    Args:
        data: the file, all chunks joined.
        key_fingerprint: `sha256:…` of the operator's key. Without it the report can only say
            `consistent with itself`, and is not `ok`.
        previous: the evidence before this one, to check that this one follows it.
    """
    reading = _Reading(fingerprint=key_fingerprint, earlier=previous)
    pinned = False
    try:
        for line in BytesIO(data):
            _read_line(line, reading)
            pinned = key_fingerprint is not None
        footer = _check_end(reading)
    except _Bad as bad:
        words = f"record {bad.record} is wrong: {bad.why}"
        return EvidenceReport(
            ok=False,
            pinned=pinned,
            first_fault=bad.why,
            record=bad.record,
            summary=words,
            phase=None,
            digest=digest(data),
        )
    return EvidenceReport(
        ok=pinned,
        pinned=pinned,
        first_fault=None,
        record=None,
        summary=_summary(footer, reading, pinned=pinned),
        phase=footer.phase,
        digest=digest(data),
    )


def _read_line(line: bytes, reading: _Reading) -> None:
    reading.at += 1
    if not line.endswith(b"\n"):
        raise reading.bad("the file ends inside this record")
    try:
        signed = parse_model(Signed[EvidenceRecord], line[:-1])
    except CanonicalError as fault:
        raise reading.bad(str(fault)) from fault
    record = signed.payload
    header, key = _anchor(record, reading)
    try:
        verify(signed, key, domain=EVIDENCE_DOMAIN)
    except SignatureInvalid as fault:
        raise reading.bad(str(fault)) from fault
    if record.sequence != reading.at:
        raise reading.bad(f"it is numbered {record.sequence}: a record is missing or moved")
    if record.previous != reading.last_digest:
        raise reading.bad("it does not follow the record before it")
    _check_stage(record, reading)
    _take(record, reading, header=header)
    reading.last_digest = digest(line[:-1])


def _anchor(record: EvidenceRecord, reading: _Reading) -> tuple[Header, VerifyKey]:
    """Return the header and the key that the whole file rests on; the first record brings them."""
    if reading.anchor is None:
        if not isinstance(record.body, Header):
            raise reading.bad("the file does not begin with a header")
        reading.anchor = (record.body, _operator_key(record.body, reading))
    return reading.anchor


def _operator_key(header: Header, reading: _Reading) -> VerifyKey:
    try:
        key = VerifyKey.from_b64(header.operator_key)
    except KeyMalformed as fault:
        raise reading.bad(f"the operator's key: {fault}") from fault
    if reading.fingerprint is not None and key.fingerprint != reading.fingerprint:
        raise reading.bad(f"signed by {key.fingerprint}, pinned is {reading.fingerprint}")
    return key


def _check_stage(record: EvidenceRecord, reading: _Reading) -> None:
    stage = _STAGE[record.body.kind]
    once = stage in (_STAGE["header"], _STAGE["footer"])
    if stage < reading.stage or (once and stage == reading.stage):
        raise reading.bad(f"a {record.body.kind} has no place here")
    reading.stage = stage


def _take(record: EvidenceRecord, reading: _Reading, *, header: Header) -> None:
    body = record.body
    match body:
        case Header():
            _take_header(body, reading)
        case Member():
            _take_member(body, reading)
        case ReceiptRecord():
            _take_outcome(body.receipt.payload.pod_uid, body, reading)
            _take_receipt(body.receipt, reading, header=header)
        case Dead():
            _take_outcome(body.pod_uid, body, reading)
        case Unproved():
            _take_outcome(body.pod_uid, body, reading)
            reading.owed.append((reading.at, not_shown_text(body.pod_uid, body.reason)))
        case Footer():
            _take_footer(body, reading)


def _take_header(header: Header, reading: _Reading) -> None:
    if header.wire_version != 1:
        raise reading.bad(f"evidence version {header.wire_version} is not known here")
    if header.sequence != header.previous.sequence + 1:
        raise reading.bad("its number is not one above the previous evidence's")
    if (header.previous.sequence == 0) != (header.previous.digest == GENESIS):
        raise reading.bad("the first evidence, and it alone, follows the genesis digest")
    if reading.earlier is not None and header.previous.digest != digest(reading.earlier):
        raise reading.bad("it does not follow the previous evidence that was given")


def _take_member(member: Member, reading: _Reading) -> None:
    if member.pod_uid in reading.members:
        raise reading.bad(f"pod {member.pod_uid} is expected twice")
    reading.members[member.pod_uid] = (reading.at, member)
    binding = member.binding
    if binding is None:
        if member.receipt_key or member.certificate_fingerprint:
            raise reading.bad(f"pod {member.pod_uid} has keys that no token review binds to it")
        return
    if (binding.pod_uid, binding.pod_name) != (member.pod_uid, member.pod_name):
        raise reading.bad(f"the token review names another pod than {member.pod_uid}")
    if binding.audience != ADMISSION_AUDIENCE:
        raise reading.bad(f"the token review is for audience {binding.audience}")
    _check_keys(member, reading)
    if member.receipt_key in reading.receipt_keys:
        raise reading.bad(f"pod {member.pod_uid} has the receipt key of another pod")
    reading.receipt_keys.add(member.receipt_key)


def _check_keys(member: Member, reading: _Reading) -> None:
    try:
        VerifyKey.from_b64(member.receipt_key)
    except KeyMalformed as fault:
        raise reading.bad(f"pod {member.pod_uid}: {fault}") from fault
    if not _FINGERPRINT.fullmatch(member.certificate_fingerprint):
        raise reading.bad(f"pod {member.pod_uid} has no fingerprint of its certificate")


def _take_outcome(pod_uid: str, outcome: Outcome, reading: _Reading) -> None:
    if pod_uid not in reading.members:
        raise reading.bad(f"pod {pod_uid} is not among the expected members")
    if pod_uid in reading.outcomes:
        raise reading.bad(f"pod {pod_uid} has two outcomes")
    reading.outcomes[pod_uid] = (reading.at, outcome)


def _take_receipt(signed: Signed[Receipt], reading: _Reading, *, header: Header) -> None:
    receipt = signed.payload
    _, member = reading.members[receipt.pod_uid]
    why = receipt_fault(signed, member=member, header=header)
    if why is not None:
        raise reading.bad(why)
    for fault in receipt_faults(receipt):
        reading.owed.append((reading.at, not_shown_text(receipt.pod_uid, fault)))


def _take_footer(footer: Footer, reading: _Reading) -> None:
    reading.footer = footer
    for pod_uid, (at, _) in reading.members.items():
        if pod_uid not in reading.outcomes:
            raise _Bad(at, f"pod {pod_uid} has no receipt, no proof of death, no mention")
    for at, text in reading.owed:
        if text not in footer.not_shown:
            raise _Bad(at, f"the footer does not say: {text}")
    if (footer.phase == "Completed") != (not footer.not_shown):
        raise reading.bad(f"it says {footer.phase} with {len(footer.not_shown)} things not shown")
    outcomes = [outcome for _, outcome in reading.outcomes.values()]
    listed = {item.partition(":")[0] for item in footer.not_covered}
    for item in STANDARD_NOT_COVERED:
        if item.partition(":")[0] not in listed:
            raise reading.bad(f"it does not list as not covered: {item}")
    for item in left_behind(outcomes):
        if item not in footer.not_covered:
            raise reading.bad(f"it does not list as not covered: {item}")
    if footer.totals != totals_of(len(reading.members), outcomes):
        raise reading.bad("its totals are not the sums of the records")


def _check_end(reading: _Reading) -> Footer:
    if reading.footer is None:
        raise _Bad(reading.at + 1, "the file ends without a footer: it was cut short")
    return reading.footer


def _summary(footer: Footer, reading: _Reading, *, pinned: bool) -> str:
    totals = footer.totals
    about = reading.anchor[0].about if reading.anchor else ""
    standing = "signed by the pinned key" if pinned else f"{CONSISTENT}, no key was pinned"
    return (
        f"purge {about} {footer.phase}: {totals.members} members, "
        f"{totals.receipts} receipts, {totals.dead} dead, {totals.unproved} unproved, "
        f"{totals.blocks} blocks, {totals.bytes} bytes; {standing}"
    )
