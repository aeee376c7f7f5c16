"""What the builder and the verifier of evidence both ask of its records."""

from __future__ import annotations

from collections.abc import Sequence

from fleetward_api.errors import KeyMalformed, SignatureInvalid
from fleetward_api.evidence_records import (
    Dead,
    Header,
    Member,
    Outcome,
    ReceiptRecord,
    Totals,
    Unproved,
)
from fleetward_api.keys import VerifyKey
from fleetward_api.receipt import RECEIPT_DOMAIN, Receipt
from fleetward_api.signed import Signed, verify


def receipt_fault(signed: Signed[Receipt], *, member: Member, header: Header) -> str | None:
    """Return why a receipt is not this member's for this purge, or None. Counts aside.

    The operator asks this of every answer to `POST /purge`; whoever fails is `Unproved`.
    """
    receipt = signed.payload
    if member.binding is None:
        return f"pod {member.pod_uid} was never admitted, so no key of it is known"
    try:
        verify(signed, VerifyKey.from_b64(member.receipt_key), domain=RECEIPT_DOMAIN)
    except (SignatureInvalid, KeyMalformed) as fault:
        return f"the receipt of pod {member.pod_uid}: {fault}"
    if receipt.key_id != signed.key_id:
        return f"the receipt names key {receipt.key_id} and is signed by {signed.key_id}"
    if receipt.pod_uid != member.pod_uid:
        return f"the receipt names pod {receipt.pod_uid}, its key is pod {member.pod_uid}'s"
    if receipt.purge_uid != header.purge_uid:
        return f"the receipt is for purge {receipt.purge_uid}"
    if receipt.scope_digest != header.scope_digest:
        return "the receipt is for another scope"
    if receipt.floor < header.cut.floor:
        return f"the receipt's floor {receipt.floor} is below the cut's {header.cut.floor}"
    return None


def not_shown_text(pod_uid: str, words: str) -> str:
    """Return how the footer lists something that a pod could not show."""
    return f"{pod_uid}: {words}"[:4096]


def left_behind(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Return, as an item of `not_covered`, that members dropped KV without overwriting it.

    A policy may ask for that (`deletion.scrub: false`); evidence must not hide it.
    """
    receipts = [out.receipt.payload for out in outcomes if isinstance(out, ReceiptRecord)]
    tiers = [tier for receipt in receipts for tier in receipt.tiers]
    left = sum(one.blocks for one in tiers if (one.tier, one.method) == ("device", "dropped"))
    if not left:
        return ()
    return (f"not-overwritten: {left} blocks, dropped; their bytes stay until they are used again",)


def totals_of(members: int, outcomes: Sequence[Outcome]) -> Totals:
    """Return the sums of a file with these expected members and outcomes."""
    receipts = [out.receipt.payload for out in outcomes if isinstance(out, ReceiptRecord)]
    tiers = [tier for receipt in receipts for tier in receipt.tiers]
    return Totals(
        members=members,
        receipts=len(receipts),
        dead=sum(isinstance(outcome, Dead) for outcome in outcomes),
        unproved=sum(isinstance(outcome, Unproved) for outcome in outcomes),
        blocks=sum(receipt.kv_blocks for receipt in receipts),
        bytes=sum(tier.bytes for tier in tiers),
        records=members + len(outcomes) + 2,
    )
