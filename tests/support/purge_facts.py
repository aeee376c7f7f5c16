"""Facts of a purge that tests build receipts and evidence from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetward_api.canonical import digest
from fleetward_api.evidence import (
    GENESIS,
    Binding,
    ChainHead,
    Cut,
    Dead,
    Header,
    Member,
    Outcome,
    PolicyInForce,
    ReceiptRecord,
    Unproved,
    build_evidence,
)
from fleetward_api.keys import SigningKey
from fleetward_api.receipt import RECEIPT_DOMAIN, Receipt, TierCounts
from fleetward_api.signed import sign

SCOPE_DIGEST = "5c" * 32
PURGE_UID = "purge-uid-1"


def header_of(key: SigningKey, **changes: Any) -> Header:
    facts: dict[str, Any] = {
        "sequence": 1,
        "previous": ChainHead(),
        "purge_uid": PURGE_UID,
        "purge_name": "forget-acme",
        "scope_digest": SCOPE_DIGEST,
        "scope_kind": "tenant",
        "cut": Cut(floor=3, floors_version=9, resource_version="4711"),
        "policies": (PolicyInForce(service="default/chat", service_uid="s1", generation=4),),
        "operator_key": key.verify_key.to_b64(),
        "started_at": 1_700_000_000_000,
    }
    return Header(**{**facts, **changes})


def member_of(name: str, key: SigningKey, **changes: Any) -> Member:
    facts: dict[str, Any] = {
        "member": "engine",
        "pod_uid": f"uid-{name}",
        "pod_name": name,
        "namespace": "default",
        "receipt_key": key.verify_key.to_b64(),
        "certificate_fingerprint": digest(name.encode()),
        "binding": binding_of(name),
    }
    return Member(**{**facts, **changes})


def binding_of(name: str, **changes: Any) -> Binding:
    facts: dict[str, Any] = {
        "audience": "fleetward-operator",
        "username": "system:serviceaccount:default:chat",
        "pod_name": name,
        "pod_uid": f"uid-{name}",
        "reviewed_at": 1_699_999_999_000,
    }
    return Binding(**{**facts, **changes})


def receipt_of(name: str, key: SigningKey, **changes: Any) -> Receipt:
    facts: dict[str, Any] = {
        "purge_uid": PURGE_UID,
        "scope_digest": SCOPE_DIGEST,
        "pod_uid": f"uid-{name}",
        "key_id": key.verify_key.key_id,
        "floor": 3,
        "tiers": (
            TierCounts(tier="index", blocks=7, bytes=0, method="dropped"),
            TierCounts(tier="device", blocks=7, bytes=7 * 4096, method="overwritten"),
        ),
        "in_flight_finished": 1,
        "chain_before": GENESIS,
        "chain_after": digest(b"after"),
        "sequence_before": 0,
        "sequence_after": 2,
        "inserted": 9,
        "evicted": 2,
        "removed": 7,
        "probes": 7,
        "started_at": 1_700_000_000_500,
        "finished_at": 1_700_000_000_900,
        "versions": {"fleetward-engine": "0.1.0"},
    }
    return Receipt(**{**facts, **changes})


def receipt_record(name: str, key: SigningKey, **changes: Any) -> ReceiptRecord:
    signed = sign(receipt_of(name, key, **changes), key, domain=RECEIPT_DOMAIN)
    return ReceiptRecord(receipt=signed)


def dead_of(name: str) -> Dead:
    return Dead(pod_uid=f"uid-{name}", words="container engine: Terminated, exit 137", at=1)


def unproved_of(name: str) -> Unproved:
    return Unproved(pod_uid=f"uid-{name}", reason="node worker-3 is unreachable")


def evidence_of(
    key: SigningKey, members: Sequence[Member], outcomes: Sequence[Outcome], **changes: Any
) -> bytes:
    facts: dict[str, Any] = {
        "header": header_of(key),
        "members": members,
        "outcomes": outcomes,
        "key": key,
        "completed_at": 1_700_000_001_000,
    }
    return build_evidence(**{**facts, **changes})
