"""Purge evidence: build it, cut it into ConfigMaps, check it offline.

The operator builds `evidence.jsonl` once per purge; anyone with the operator's fingerprint can
check it (`verify_evidence`). A file that its own verifier would refuse is never handed out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from fleetward_api.canonical import canonical_bytes, digest
from fleetward_api.chain_log import GENESIS, ChainHead, ChainLog, ChainRecord, chain_fault
from fleetward_api.errors import EvidenceError
from fleetward_api.evidence_records import (
    ADMISSION_AUDIENCE,
    EVIDENCE_DOMAIN,
    STANDARD_NOT_COVERED,
    Binding,
    Body,
    Cut,
    Dead,
    EvidenceRecord,
    Footer,
    Header,
    Member,
    Outcome,
    Phase,
    PolicyInForce,
    ReceiptRecord,
    Totals,
    Unproved,
)
from fleetward_api.evidence_rules import (
    left_behind,
    not_shown_text,
    receipt_fault,
    totals_of,
)
from fleetward_api.evidence_verify import CONSISTENT, EvidenceReport, verify_evidence
from fleetward_api.keys import SigningKey
from fleetward_api.receipt import receipt_faults
from fleetward_api.signed import sign

__all__ = [
    "ADMISSION_AUDIENCE",
    "CONSISTENT",
    "GENESIS",
    "STANDARD_NOT_COVERED",
    "Binding",
    "ChainHead",
    "ChainLog",
    "ChainRecord",
    "Cut",
    "Dead",
    "EvidenceRecord",
    "EvidenceReport",
    "Footer",
    "Header",
    "Member",
    "Outcome",
    "Phase",
    "PolicyInForce",
    "ReceiptRecord",
    "Totals",
    "Unproved",
    "build_evidence",
    "chain_fault",
    "chunk_evidence",
    "evidence_head",
    "not_shown_by",
    "receipt_fault",
    "verify_evidence",
]

CHUNK_BYTES: Final = 900_000


def not_shown_by(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """Return what these outcomes leave unshown: unproved members, receipts that don't add up."""
    texts: list[str] = []
    for outcome in outcomes:
        if isinstance(outcome, Unproved):
            texts.append(not_shown_text(outcome.pod_uid, outcome.reason))
        elif isinstance(outcome, ReceiptRecord):
            receipt = outcome.receipt.payload
            texts += [not_shown_text(receipt.pod_uid, why) for why in receipt_faults(receipt)]
    return tuple(texts)


def build_evidence(
    *,
    header: Header,
    members: Sequence[Member],
    outcomes: Sequence[Outcome],
    key: SigningKey,
    completed_at: int,
    not_covered: Sequence[str] = (),
    not_shown: Sequence[str] = (),
) -> bytes:
    """Return the evidence of one purge; its phase follows from what could be shown.

    Args:
        header: the cut and the evidence before; `operator_key` is the public half of `key`.
        members: every pod that existed at the cut.
        outcomes: exactly one per member.
        key: the operator's signing key.
        completed_at: milliseconds since the epoch.
        not_covered: limits beyond `STANDARD_NOT_COVERED`, as `id: words`.
        not_shown: what else could not be shown; anything here makes the purge `Incomplete`.

    Raises:
        EvidenceError: the facts contradict each other (a member without an outcome, a receipt by
            another key, …), naming the first contradiction.
    """
    missing = (*not_shown, *not_shown_by(outcomes))
    footer = Footer(
        phase="Incomplete" if missing else "Completed",
        not_covered=(*STANDARD_NOT_COVERED, *left_behind(outcomes), *not_covered),
        not_shown=missing,
        totals=totals_of(len(members), outcomes),
        completed_at=completed_at,
    )
    data = _signed_lines((header, *members, *outcomes, footer), key)
    report = verify_evidence(data, key_fingerprint=key.verify_key.fingerprint)
    if not report.ok:
        raise EvidenceError(f"no honest evidence can be built of these facts: {report.summary}")
    return data


def evidence_head(data: bytes, *, sequence: int) -> ChainHead:
    """Return the head that the next evidence names as its previous one."""
    return ChainHead(sequence=sequence, digest=digest(data))


def chunk_evidence(data: bytes, limit: int = CHUNK_BYTES) -> list[bytes]:
    """Cut evidence into pieces of at most `limit` bytes, between lines wherever a line fits.

    The pieces joined are the file again, byte for byte.

    Raises:
        EvidenceError: `limit` is below one byte.
    """
    if limit < 1:
        raise EvidenceError("a chunk must hold at least one byte")
    chunks: list[bytes] = []
    rest = data
    while len(rest) > limit:
        cut = rest.rfind(b"\n", 0, limit) + 1 or limit
        chunks.append(rest[:cut])
        rest = rest[cut:]
    return [*chunks, rest] if rest else chunks


def _signed_lines(bodies: Iterable[Body], key: SigningKey) -> bytes:
    lines: list[bytes] = []
    previous = GENESIS
    for number, body in enumerate(bodies, start=1):
        record = EvidenceRecord(sequence=number, previous=previous, body=body)
        line = canonical_bytes(sign(record, key, domain=EVIDENCE_DOMAIN))
        previous = digest(line)
        lines.append(line + b"\n")
    return b"".join(lines)
