"""From a purge's state to the records of its evidence."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass

from fleetward_api.admin import MemberKind
from fleetward_api.chain_log import ChainHead
from fleetward_api.evidence import (
    Binding,
    Cut,
    Dead,
    Header,
    Outcome,
    PolicyInForce,
    ReceiptRecord,
    Unproved,
)
from fleetward_api.evidence import Member as EvidenceMember
from fleetward_api.receipt import Receipt
from fleetward_api.scope import Scope, scope_digest
from fleetward_api.signed import Signed
from fleetward_operator.core.purge.state import Member, PurgeState, Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeIdentity:
    """Which purge it is, and of what; the digest names the scope to everyone else.

    `widened` says that a finer scope was asked for.
    """

    uid: str
    name: str
    scope: Scope
    digest_key: bytes
    widened: bool = False

    @property
    def scope_digest(self) -> str:
        """The scope by its keyed digest."""
        return scope_digest(self.digest_key, self.scope)


def evidence_header(
    purge: PurgeIdentity,
    state: PurgeState,
    *,
    previous: ChainHead,
    operator_key: str,
    epoch: int,
    policies: Sequence[PolicyInForce],
) -> Header:
    """The first record: the cut, and the evidence before this one."""
    return Header(
        sequence=previous.sequence + 1,
        previous=previous,
        purge_uid=purge.uid,
        purge_name=purge.name,
        scope_digest=purge.scope_digest,
        scope_kind=purge.scope.kind,
        widened_to=purge.scope.kind if purge.widened else "",
        cut=Cut(floor=state.floor, floors_version=state.cut, resource_version=state.cut_version),
        epoch=epoch,
        policies=tuple(policies),
        operator_key=operator_key,
        started_at=int(state.started_at * 1000),
    )


def evidence_member(member: Member) -> EvidenceMember:
    """The record of one expected member, with its admission where there was one."""
    kind: MemberKind = "gateway" if member.kind == "gateway" else "engine"
    if not member.binding:
        return EvidenceMember(
            member=kind, pod_uid=member.uid, pod_name=member.name, namespace=member.namespace
        )
    facts = json.loads(member.binding)
    return EvidenceMember(
        member=kind,
        pod_uid=member.uid,
        pod_name=member.name,
        namespace=member.namespace,
        receipt_key=facts["receiptKey"],
        certificate_fingerprint=facts["certificateFingerprint"],
        binding=Binding.model_validate(facts["binding"]),
    )


def evidence_outcome(member: Member) -> Outcome:
    """What became of one member."""
    match member.standing:
        case Standing.SIGNED | Standing.FAULTY:
            signed = Signed[Receipt].model_validate_json(member.receipt)
            return ReceiptRecord(receipt=signed)
        case Standing.DEAD:
            return Dead(pod_uid=member.uid, words=member.detail, at=_milliseconds(member.at))
        case Standing.UNPROVED | Standing.EXPECTED | Standing.FENCED:
            return Unproved(pod_uid=member.uid, reason=member.detail or "it did not answer")


def _milliseconds(stamp: str) -> int:
    """A kubelet's time in milliseconds since the epoch; 0 when it gave none."""
    if not stamp:
        return 0
    return int(dt.datetime.fromisoformat(stamp).timestamp() * 1000)
