"""The status of a purge: phase, counts, receipts in short, and what could not be shown."""

from __future__ import annotations

import datetime as dt

from fleetward_api.canonical import digest
from fleetward_api.conditions import format_time
from fleetward_api.receipt import Receipt
from fleetward_api.resources import CachePurge, CachePurgeStatus, NotCovered, ReceiptSummary
from fleetward_api.signed import Signed
from fleetward_operator.core.gate import Refusal
from fleetward_operator.core.purge.state import (
    FINAL,
    PROVED,
    Member,
    Phase,
    PurgeState,
    Standing,
)
from fleetward_operator.core.service_facts import Verdict, fails, holds
from fleetward_operator.core.verdicts import conditions_from

MOST_LISTED = 1000
_UNDER_WAY = {
    Phase.PENDING: "The floor is about to be raised.",
    Phase.FENCING: "Members are being told not to reuse the scope's cache, then to remove it",
    Phase.PURGING: "All members know; they remove and overwrite",
    Phase.VERIFYING: "Receipts are being checked and the evidence stored",
}


def build_purge_status(
    purge: CachePurge,
    state: PurgeState,
    *,
    scope_digest: str,
    widened_to: str,
    now: dt.datetime,
) -> CachePurgeStatus:
    """The whole status for a state; equal to the one before when nothing has changed."""
    receipts = tuple(_summary(one) for one in state.members if one.receipt)[:MOST_LISTED]
    message = describe(state)
    before = purge.status
    ended = state.phase in FINAL
    started = format_time(dt.datetime.fromtimestamp(state.started_at, dt.UTC))
    return CachePurgeStatus(
        message=message,
        observed_generation=purge.metadata.generation,
        phase=state.phase.value,
        widened_to=widened_to or None,
        scope_digest=scope_digest,
        floor=state.floor or None,
        cut=state.cut_version or None,
        members=len(state.members),
        proved_members=len(state.uids(*PROVED)),
        blocks=sum(one.blocks for one in receipts),
        bytes=sum(one.bytes for one in receipts),
        receipts=receipts,
        evidence_digest=state.evidence_digest or None,
        evidence_config_maps=state.evidence_names,
        started_at=started if state.started_at else None,
        completed_at=(before.completed_at or format_time(now)) if ended else None,
        not_covered=_not_covered(state) if ended else (),
        conditions=conditions_from(
            before.conditions,
            _verdicts(state, message),
            generation=purge.metadata.generation,
            now=now,
        ),
    )


def refused_status(purge: CachePurge, refusal: Refusal, *, now: dt.datetime) -> CachePurgeStatus:
    """A purge that does not run: nothing was purged, and it says so."""
    return CachePurgeStatus(
        message=refusal.message,
        observed_generation=purge.metadata.generation,
        phase="Incomplete",
        completed_at=purge.status.completed_at or format_time(now),
        not_covered=(NotCovered(subject="everything", reason=refusal.message[:1024]),),
        conditions=conditions_from(
            purge.status.conditions,
            _ended_badly(refusal.reason, refusal.message),
            generation=purge.metadata.generation,
            now=now,
        ),
    )


def invalid_purge_status(
    message: str, *, before: CachePurgeStatus, generation: int, now: dt.datetime
) -> CachePurgeStatus:
    """A purge whose spec this release cannot read: it does not run."""
    return before.model_copy(
        update={
            "message": message[:4096],
            "observed_generation": generation,
            "conditions": conditions_from(
                before.conditions,
                _ended_badly("InvalidSpec", message),
                generation=generation,
                now=now,
            ),
        }
    )


def describe(state: PurgeState) -> str:
    """A purge's state in one sentence."""
    total, proved = len(state.members), len(state.uids(*PROVED))
    if state.phase is Phase.COMPLETED:
        return f"All {total} member(s) signed that the scope is gone, or are proved dead."
    if state.phase is Phase.INCOMPLETE:
        why = "; ".join((*state.caveats, *state.not_covered))
        return f"{proved} of {total} member(s) are proved. Not shown: {why}"[:4096]
    if state.phase is Phase.PENDING:
        return _UNDER_WAY[Phase.PENDING]
    return f"{_UNDER_WAY[state.phase]}: {proved} of {total} member(s) are proved."


def _verdicts(state: PurgeState, message: str) -> dict[str, Verdict]:
    if state.phase is Phase.INCOMPLETE:
        return _ended_badly(_fault_reason(state), message)
    if state.phase is Phase.COMPLETED:
        return {
            "Complete": holds("Completed", message),
            "Failed": fails("NotFailed", message),
            "Reconciling": fails("Ended", message),
            "Stalled": fails("NotStalled", "Nobody needs to act."),
        }
    return {
        "Complete": fails(state.phase.value, message),
        "Failed": fails("NotFailed", message),
        "Reconciling": holds("Running", message),
        "Stalled": fails("NotStalled", "Nobody needs to act."),
    }


def _ended_badly(reason: str, message: str) -> dict[str, Verdict]:
    return {
        "Complete": fails(reason, message),
        "Failed": holds(reason, message),
        "Reconciling": fails("Ended", message),
        "Stalled": holds(reason, message),
    }


def _fault_reason(state: PurgeState) -> str:
    details = [one.detail for one in state.members if one.standing not in PROVED]
    if any("probes still hit" in text for text in details):
        return "ProbeHit"
    if state.uids(Standing.FAULTY):
        return "CountsDiffer"
    if any(text.startswith("the deadline passed") for text in details):
        return "DeadlineExceeded"
    return "MemberUnproved"


def _not_covered(state: PurgeState) -> tuple[NotCovered, ...]:
    members = [
        NotCovered(
            subject=f"{one.kind} {one.namespace}/{one.name} {one.uid}", reason=one.detail[:1024]
        )
        for one in state.members
        if one.standing not in PROVED
    ]
    whole = [NotCovered(subject="members", reason=text) for text in state.caveats[:1]]
    return (*whole, *members)[:MOST_LISTED]


def _summary(member: Member) -> ReceiptSummary:
    signed = Signed[Receipt].model_validate_json(member.receipt)
    tiers = signed.payload.tiers
    return ReceiptSummary(
        pod_uid=member.uid,
        pod_name=f"{member.namespace}/{member.name}",
        kind="Gateway" if member.kind == "gateway" else "Engine",
        key_id=signed.key_id,
        blocks=signed.payload.kv_blocks,
        bytes=sum(tier.bytes for tier in tiers),
        digest=digest(member.receipt.encode()),
    )
