"""The evidence of a purge whose members have all settled."""

from __future__ import annotations

from fleetward_api.chain_log import ChainHead
from fleetward_api.evidence import build_evidence
from fleetward_operator.core.purge.events import EvidenceStored
from fleetward_operator.core.purge.evidence import (
    PurgeIdentity,
    evidence_header,
    evidence_member,
    evidence_outcome,
)
from fleetward_operator.core.purge.state import PurgeState
from fleetward_operator.core.purge.transition import advance
from fleetward_operator.handlers.context import Operator


async def store_evidence(op: Operator, purge: PurgeIdentity, state: PurgeState) -> PurgeState:
    """Store and chain the evidence of a kept state; the final state.

    Raises:
        KubeError: the API server refused; a conflict says that another leader is at it.
        StateLost: the chain's head cannot be read.
    """
    policies = op.crew.policies(state)

    def build(previous: ChainHead) -> bytes:
        return build_evidence(
            header=evidence_header(
                purge,
                state,
                previous=previous,
                operator_key=op.fleet.keys.signing.verify_key.to_b64(),
                epoch=op.fleet.epoch.number,
                policies=policies,
            ),
            members=[evidence_member(one) for one in state.members],
            outcomes=[evidence_outcome(one) for one in state.members],
            key=op.fleet.keys.signing,
            completed_at=int(op.clock.wall() * 1000),
            not_shown=state.caveats,
        )

    stored = await op.evidence.store(purge.uid, purge.name, build)
    event = EvidenceStored(digest=stored.digest, names=stored.names)
    after, _ = advance(state, event, now=op.clock.wall())
    return after
