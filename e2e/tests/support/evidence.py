"""A purge's evidence as the cluster keeps it, and its time as the audit log saw it."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from e2e.tests.support.audit import writes
from e2e.tests.support.kubectl import Cluster
from fleetward_api.keys import VerifyKey
from fleetward_cli.evidence_source import EVIDENCE

RELEASE = "fleetward-system"
_EVER = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))


def evidence_of(cluster: Cluster, purge: str) -> bytes:
    """All chunks of a purge's evidence, joined in order."""
    labels = f"fleetward.io/purge={purge},{EVIDENCE}"
    chunks = cluster.find("configmaps", namespace=RELEASE, labels=labels)
    assert chunks, f"no evidence of {purge}"
    assert all(chunk["immutable"] for chunk in chunks)
    in_order = sorted(chunks, key=lambda chunk: int(chunk["metadata"]["name"].rsplit("-", 1)[1]))
    return "".join(chunk["data"]["evidence.jsonl"] for chunk in in_order).encode()


def key_fingerprint(cluster: Cluster) -> str:
    """The fingerprint of the operator's signing key, from the trust ConfigMap."""
    trust = cluster.get("configmap", "fleetward-trust", namespace=RELEASE)
    return VerifyKey.from_b64(trust["data"]["operator.pub"]).fingerprint


def purge_blocks(evidence: bytes, *, pods: Collection[str]) -> list[int]:
    """Device blocks removed, by the receipts of the pods with these uids."""
    found = []
    for line in evidence.decode().splitlines():
        receipt = _receipt_in(json.loads(line))
        if receipt is None or receipt["podUid"] not in pods:
            continue
        tiers = receipt["tiers"]
        found += [int(tier["blocks"]) for tier in tiers if tier["tier"] == "device"]
    return found


def _receipt_in(value: object) -> dict[str, Any] | None:
    if isinstance(value, dict):
        if "purgeUid" in value and "tiers" in value:
            return value
        inner = (_receipt_in(each) for each in value.values())
        return next((each for each in inner if each), None)
    return None


def purge_seconds(cluster: Cluster, purge: str) -> float:
    """Seconds from the purge's creation to the last write of its status."""
    seen = [
        write
        for write in writes(cluster.audit_log, users="", since=_EVER[0], until=_EVER[1])
        if write.resource == "cachepurges" and write.name.endswith(f"/{purge}")
    ]
    return (seen[-1].at - seen[0].at).total_seconds()
