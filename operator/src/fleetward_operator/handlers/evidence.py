"""One pass over all evidence: what is past its retention goes, oldest first."""

from __future__ import annotations

from typing import Any

from fleetward_api.chain_log import ChainHead
from fleetward_api.quantity import format_duration
from fleetward_api.resources import CachePolicy, CachePolicySpec, InferenceService
from fleetward_operator.core.events import evidence_expired
from fleetward_operator.core.policy import DEFAULT_POLICY
from fleetward_operator.core.purge.retention import (
    Removal,
    longest_retain,
    plan_removal,
)
from fleetward_operator.edges.evidence_store import HEAD, UID_LABEL, observe_evidence
from fleetward_operator.edges.purge_record import PREFIX
from fleetward_operator.handlers.context import Operator
from fleetward_operator.handlers.purge import ENDED

PERIOD_S = 600.0
MOST = 20
"""Evidence of how many purges goes in one pass: a clock that is wrong must not take it all."""


async def reconcile_evidence(op: Operator, _key: str) -> float:
    """Remove evidence that no policy keeps any longer; seconds until the next look."""
    specs = _specs(op)
    if specs is None:
        # Nobody can say how long a policy that cannot be read keeps evidence.
        op.retain.forget()
        return PERIOD_S
    asked_s = longest_retain(specs)
    retain_s = op.retain.look(asked_s, now=op.clock.monotonic(), apart_s=PERIOD_S / 2)
    if retain_s is None:
        return PERIOD_S
    removal = await _expire(op, retain_s=retain_s)
    head = op.store.get("ConfigMap", f"{op.settings.identity.namespace}/{HEAD}")
    if removal is not None and head is not None:
        about = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": head["metadata"]}
        expired = evidence_expired(
            len(removal.purge_uids),
            last=removal.anchor.sequence,
            retain=format_duration(int(retain_s * 1000)),
        )
        await op.events.announce(about, expired)
    return PERIOD_S


async def _expire(op: Operator, *, retain_s: float) -> Removal | None:
    items = _stored(op)
    kept = [one for one in map(observe_evidence, items) if one is not None]
    before = op.clock.wall() - retain_s
    if not any(one.stored_at < before for one in kept):
        return None

    def plan(head: ChainHead) -> Removal | None:
        return plan_removal(kept, head=head, needed=_needed(op), before=before, most=MOST)

    return await op.evidence.expire(items, plan)


def _specs(op: Operator) -> list[CachePolicySpec] | None:
    """All policies, and the default one where a service follows none; None if one is unreadable."""
    found = []
    for key in op.store.keys("CachePolicy"):
        policy = op.catalog.policy(key)
        if policy is not None and not isinstance(policy, CachePolicy):
            return None
        if policy is not None:
            found.append(policy.spec)
    services = [op.catalog.service(key) for key in op.store.keys("InferenceService")]
    choices = [op.fleet.choice(one) for one in services if isinstance(one, InferenceService)]
    if not found or len(choices) < len(services) or any(not one.name for one in choices):
        found.append(DEFAULT_POLICY)
    return found


def _stored(op: Operator) -> list[dict[str, Any]]:
    namespace = op.settings.identity.namespace
    return [
        item
        for item in op.store.in_namespace("ConfigMap", namespace)
        if UID_LABEL in (item["metadata"].get("labels") or {})
    ]


def _needed(op: Operator) -> set[str]:
    """Uids of purges that run, or have ended and not said so yet."""
    records = op.store.in_namespace("ConfigMap", op.settings.identity.namespace)
    names = [str(item["metadata"]["name"]) for item in records]
    recorded = {name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)}
    purges = [op.store.get("CachePurge", key) for key in op.store.keys("CachePurge")]
    running = {
        str(item["metadata"]["uid"])
        for item in purges
        if item is not None and (item.get("status") or {}).get("phase") not in ENDED
    }
    return recorded | running
