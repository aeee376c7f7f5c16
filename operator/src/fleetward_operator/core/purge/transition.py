"""The transition function of a purge (docs/purge.md holds the protocol and its properties).

Level-triggered: commands are a function of the state alone, so an operator that takes over gives
the same ones again; every command may be repeated, every event may come late, twice or never.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fleetward_operator.core.purge.events import (
    Acked,
    AskReceipts,
    CutMade,
    Died,
    EvidenceStored,
    Fence,
    MakeCut,
    PurgeCommand,
    PurgeEvent,
    ReceiptVerified,
    ReleasePods,
    StoreEvidence,
    Tick,
    Vanished,
    Withdrawn,
)
from fleetward_operator.core.purge.state import (
    FINAL,
    PROVED,
    SETTLED,
    Member,
    Phase,
    PurgeState,
    Standing,
)

_ASKING = frozenset({Phase.FENCING, Phase.PURGING})
"""The phases in which members are asked and may be lost."""


def advance(
    state: PurgeState, event: PurgeEvent, *, now: float
) -> tuple[PurgeState, tuple[PurgeCommand, ...]]:
    """The next state and what to do in it. `now` is wall-clock time in epoch seconds."""
    if state.phase in FINAL:
        return state, commands_of(state)
    after = _settle_overdue(_absorb(state, event, now=now), now=now)
    after = _move_on(after)
    return after, commands_of(after)


def commands_of(state: PurgeState) -> tuple[PurgeCommand, ...]:
    """What this state asks for."""
    match state.phase:
        case Phase.PENDING:
            return (MakeCut(),)
        case Phase.FENCING:
            # A member that does not answer keeps none of the others from removing.
            fence = Fence(state.uids(Standing.EXPECTED))
            fenced = state.uids(Standing.FENCED)
            return (fence, AskReceipts(fenced)) if fenced else (fence,)
        case Phase.PURGING:
            return (AskReceipts(state.uids(Standing.FENCED)),)
        case Phase.VERIFYING:
            # Nothing more can be learned from the pods, however long the evidence takes.
            return (ReleasePods(), StoreEvidence())
        case Phase.COMPLETED | Phase.INCOMPLETE:
            return ()


def verdict(state: PurgeState) -> Phase:
    """The final phase that the members' standings allow: one unproved makes it Incomplete."""
    proved = not state.caveats and all(one.standing in PROVED for one in state.members)
    return Phase.COMPLETED if proved else Phase.INCOMPLETE


def _absorb(state: PurgeState, event: PurgeEvent, *, now: float) -> PurgeState:
    match event:
        case Tick():
            return state
        case CutMade():
            return _cut(state, event, now=now)
        case Acked():
            return _acked(state, event)
        case ReceiptVerified():
            return _receipt(state, event)
        case Died():
            return _ended(state, event.uid, Standing.DEAD, detail=event.words, at=event.at)
        case Vanished():
            return _ended(state, event.uid, Standing.UNPROVED, detail=event.why, at="")
        case Withdrawn():
            return _withdrawn(state, event)
        case EvidenceStored():
            return _stored(state, event)


def _cut(state: PurgeState, event: CutMade, *, now: float) -> PurgeState:
    if state.phase is not Phase.PENDING:
        return state
    return replace(
        state,
        phase=Phase.FENCING,
        cut=event.cut,
        cut_version=event.resource_version,
        started_at=now,
        floor=event.floor,
        members=tuple(sorted(event.members, key=lambda one: (one.kind, one.uid))),
    )


def _acked(state: PurgeState, event: Acked) -> PurgeState:
    # An ack of older floors is late news from before the cut: it fences nothing.
    if state.phase is not Phase.FENCING or event.floors_version < state.cut:
        return state
    return state.with_member(event.uid, _fenced)


def _fenced(member: Member) -> Member:
    if member.standing is not Standing.EXPECTED:
        return member
    return replace(member, standing=Standing.FENCED)


def _receipt(state: PurgeState, event: ReceiptVerified) -> PurgeState:
    member = state.member(event.uid)
    if state.phase not in _ASKING or member is None:
        return state
    # A receipt signed below the raised floor was made before the fence.
    if member.standing is not Standing.FENCED or event.floor < state.floor:
        return state
    standing = Standing.FAULTY if event.faults else Standing.SIGNED
    signed = replace(
        member,
        standing=standing,
        detail="; ".join(event.faults),
        receipt=event.receipt,
        binding=event.binding,
    )
    return state.with_member(event.uid, lambda _: signed)


def _ended(state: PurgeState, uid: str, standing: Standing, *, detail: str, at: str) -> PurgeState:
    if state.phase not in _ASKING:
        return state

    def end(member: Member) -> Member:
        # What a member has already signed stays true after its death.
        if member.standing in SETTLED:
            return member
        return replace(member, standing=standing, detail=detail, at=at)

    return state.with_member(uid, end)


def _withdrawn(state: PurgeState, event: Withdrawn) -> PurgeState:
    if state.phase not in _ASKING:
        return state
    return _give_up(state, lambda _: event.why)


def _stored(state: PurgeState, event: EvidenceStored) -> PurgeState:
    if state.phase is not Phase.VERIFYING:
        return state
    return replace(
        state,
        phase=verdict(state),
        evidence_digest=event.digest,
        evidence_names=event.names,
    )


def _settle_overdue(state: PurgeState, *, now: float) -> PurgeState:
    """At the deadline, whoever has not settled is unproved: the purge ends honest, not late."""
    if now < state.deadline or state.phase not in _ASKING:
        return state
    return _give_up(state, _overdue)


def _overdue(member: Member) -> str:
    waited = "its ack of the fence" if member.standing is Standing.EXPECTED else "its receipt"
    return f"the deadline passed while waiting for {waited}"


def _give_up(state: PurgeState, why: Callable[[Member], str]) -> PurgeState:
    """Whoever has not settled is unproved, with the last thing known about it."""

    def end(member: Member) -> Member:
        if member.standing in SETTLED:
            return member
        detail = why(member)
        if member.detail:
            detail = f"{detail}; last: {member.detail}"
        return replace(member, standing=Standing.UNPROVED, detail=detail)

    return replace(state, members=tuple(end(one) for one in state.members))


def _move_on(state: PurgeState) -> PurgeState:
    fenced = not state.uids(Standing.EXPECTED)
    if state.phase is Phase.FENCING and fenced:
        state = replace(state, phase=Phase.PURGING)
    if state.phase is Phase.PURGING and state.settled:
        state = replace(state, phase=Phase.VERIFYING)
    return state
