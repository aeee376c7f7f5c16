"""Purges whose CachePurge is gone: what was shown so far becomes evidence, pods are let go."""

from __future__ import annotations

from typing import Any

from fleetward_operator.core.events import purge_ended
from fleetward_operator.core.purge.events import Withdrawn
from fleetward_operator.core.purge.evidence import PurgeIdentity
from fleetward_operator.core.purge.report import describe
from fleetward_operator.core.purge.state import Phase, PurgeState
from fleetward_operator.core.purge.transition import advance
from fleetward_operator.edges.purge_record import PREFIX
from fleetward_operator.handlers.context import Operator
from fleetward_operator.handlers.purge_evidence import store_evidence
from fleetward_operator.manifests.names import PURGE_LABEL

WITHDRAWN = "the CachePurge was deleted while it ran"


async def end_namesakes(op: Operator, name: str, *, but: str = "") -> None:
    """End what is recorded of earlier purges of this name; `but` is the uid of today's."""
    for item in list(op.store.in_namespace("ConfigMap", op.settings.identity.namespace)):
        metadata = item["metadata"]
        labels = metadata.get("labels") or {}
        if metadata["name"].startswith(PREFIX) and labels.get(PURGE_LABEL) == name:
            uid = metadata["name"].removeprefix(PREFIX)
            if uid != but:
                await _end(op, uid)


async def end_recorded(op: Operator, purge_uid: str) -> None:
    """End what is still recorded of one purge. Floors stay raised."""
    key = f"{op.settings.identity.namespace}/{PREFIX}{purge_uid}"
    if op.store.get("ConfigMap", key) is not None:
        await _end(op, purge_uid)


async def _end(op: Operator, purge_uid: str) -> None:
    kept = await op.records.recall(purge_uid)
    if kept is not None:
        state, _ = advance(kept.state, Withdrawn(why=WITHDRAWN), now=op.clock.wall())
        if kept.scope is not None and state.phase is Phase.VERIFYING:
            purge = PurgeIdentity(
                uid=purge_uid,
                name=kept.name,
                scope=kept.scope,
                digest_key=op.fleet.keys.digest,
                widened=kept.widened,
            )
            if state != kept.state:
                # As in a purge that goes on: what the pods are let go for is kept before.
                await op.records.write(
                    purge_uid, kept.name, state, scope=kept.scope, widened=kept.widened
                )
            await op.holds.release(purge_uid, state.members)
            await _tell(op, kept.item, await store_evidence(op, purge, state))
        else:
            await op.holds.release(purge_uid, state.members)
    await op.records.remove(purge_uid)


async def _tell(op: Operator, about: dict[str, Any], state: PurgeState) -> None:
    ended = purge_ended(
        completed=state.phase is Phase.COMPLETED,
        digest=state.evidence_digest,
        message=describe(state),
    )
    await op.events.announce(about, ended)
