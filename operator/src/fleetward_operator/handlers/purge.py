"""One pass over a CachePurge: drives its state machine as far as it goes without waiting."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from fleetward_api.resources import CachePurge, CachePurgeStatus, InvalidResource
from fleetward_operator.core.events import purge_ended, purge_refused, purge_started
from fleetward_operator.core.gate import Refusal
from fleetward_operator.core.purge.events import (
    AskReceipts,
    Fence,
    MakeCut,
    PurgeEvent,
    ReleasePods,
    StoreEvidence,
    Tick,
)
from fleetward_operator.core.purge.evidence import PurgeIdentity
from fleetward_operator.core.purge.plan import (
    PurgePlan,
    first_state,
    plan_purge,
    resumed_plan,
)
from fleetward_operator.core.purge.report import (
    build_purge_status,
    describe,
    invalid_purge_status,
    refused_status,
)
from fleetward_operator.core.purge.state import FINAL, Phase, PurgeState
from fleetward_operator.core.purge.transition import advance, commands_of
from fleetward_operator.edges.purge_crew import Answer
from fleetward_operator.edges.writer import PURGE
from fleetward_operator.handlers.context import Operator
from fleetward_operator.handlers.purge_evidence import store_evidence
from fleetward_operator.handlers.purge_withdrawn import end_namesakes, end_recorded

RETRY_S = 0.3
SHOW_AFTER_S = 0.5
"""How long members may be asked in a new phase before the status says so: most answer sooner."""
ENDED = frozenset(phase.value for phase in FINAL)
HELD = frozenset({Phase.FENCING, Phase.PURGING})
"""The phases in which member pods carry our finalizer."""


async def reconcile_purge(op: Operator, key: str) -> float | None:
    """Run one purge; seconds until members that did not answer are asked again."""
    item = op.store.get("CachePurge", key)
    if item is None:
        await end_namesakes(op, key)
        return None
    try:
        purge = CachePurge.parse(item)
    except InvalidResource as fault:
        return await _report_invalid(op, item, fault.message)
    if purge.status.phase in ENDED or purge.metadata.deleting:
        await end_recorded(op, purge.metadata.uid)
        return None
    kept = await op.records.recall(purge.metadata.uid)
    plan: PurgePlan | Refusal
    if kept is not None and kept.scope is not None:
        plan = resumed_plan(purge, scope=kept.scope)
    else:
        bundles = op.fleet.bundles()
        plan = plan_purge(purge, digest_key=op.fleet.keys.digest, bundles=bundles)
    if isinstance(plan, Refusal):
        status = refused_status(purge, plan, now=op.clock.now())
        await op.statuses.write(
            item, before=purge.status, after=status, manager=PURGE, guarded=True
        )
        await op.events.announce(item, purge_refused(plan.message))
        return None
    return await PurgeRun(op, key, purge, plan).go_on(kept.state if kept is not None else None)


@dataclass(slots=True)
class PurgeRun:
    """One purge as far as it is driven in one pass."""

    op: Operator
    key: str
    purge: CachePurge
    plan: PurgePlan

    @property
    def identity(self) -> PurgeIdentity:
        """Which purge it is, and of what."""
        metadata = self.purge.metadata
        return PurgeIdentity(
            uid=metadata.uid,
            name=metadata.name,
            scope=self.plan.scope,
            digest_key=self.op.fleet.keys.digest,
            widened=self.plan.widened,
        )

    async def go_on(self, state: PurgeState | None) -> float | None:
        """Drive the purge until it ends or must wait for a member; from `state`, where kept."""
        if state is None:
            await end_namesakes(self.op, self.key, but=self.identity.uid)
            state = first_state(self.plan, phase_before=self.purge.status.phase)
            if self.plan.widened_to:
                # What is purged beyond what was asked is said before it is purged.
                await self._tell(state)
        elif state.phase in HELD:
            # An earlier leader may have died before it held them, and only it knew who needs whom.
            await self.op.holds.hold(self.identity.uid, state.members)
        while state.phase not in FINAL:
            after = await self._step(state)
            if after.phase is state.phase:
                if after != state:
                    await self._keep(after)
                    # Written only where it differs: no more often than members bring news.
                    await self._tell(after)
                return RETRY_S
            state = after
        await self._end(state)
        return None

    async def _step(self, state: PurgeState) -> PurgeState:
        """Carry out what the state asks for, and take in what came of it."""
        rounds = []
        for command in commands_of(state):
            match command:
                case MakeCut():
                    return await self._cut(state)
                case Fence(uids):
                    rounds.append(self.op.crew.fence(state, uids))
                case AskReceipts(uids):
                    rounds.append(self.op.crew.ask_receipts(state, uids, self.identity))
                case ReleasePods():
                    # Kept first: a later leader could not ask pods that are gone by then.
                    await self._keep(state)
                    await self.op.holds.release(self.identity.uid, state.members)
                case StoreEvidence():
                    return await store_evidence(self.op, self.identity, state)
        answers = await self._answers(state, asyncio.gather(*rounds))
        return await self._round(state, [one for answered in answers for one in answered])

    async def _answers(
        self, state: PurgeState, asked: asyncio.Future[list[list[Answer]]]
    ) -> list[list[Answer]]:
        """What members answer; when that takes long, a phase that is new is told meanwhile."""
        try:
            done, _ = await asyncio.wait({asked}, timeout=SHOW_AFTER_S)
            shown = (self._item().get("status") or {}).get("phase")
            if not done and shown != state.phase.value:
                # Kept first: the next leader must not tell an earlier phase.
                await self._keep(state)
                await self._tell(state)
            return await asked
        except BaseException:
            asked.cancel()
            # Nobody waits for it any more: its end is not to be reported as an oversight.
            asked.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            raise

    async def _cut(self, state: PurgeState) -> PurgeState:
        cut = await self.op.crew.make_cut(self.identity)
        after = self._advance(state, cut)
        # Written before anything is asked of anyone: who existed must survive us.
        await self._keep(after)
        await asyncio.gather(
            self.op.holds.hold(self.identity.uid, after.members),
            self._tell(after),
            self.op.events.announce(self._item(), purge_started(len(after.members))),
        )
        return after

    async def _round(self, state: PurgeState, answers: list[Answer]) -> PurgeState:
        """Take in one round of answers, then the kubelet's word on those that did not answer."""
        for answer in answers:
            if answer.event is not None:
                state = self._advance(state, answer.event)
            elif answer.fault:
                state = _note(state, answer.uid, answer.fault)
        if not all(answer.event for answer in answers) or not answers:
            for event in await self.op.crew.look(state):
                state = self._advance(state, event)
        return self._advance(state, Tick())

    async def _end(self, state: PurgeState) -> None:
        await self._tell(state)
        completed = state.phase is Phase.COMPLETED
        ended = purge_ended(
            completed=completed, digest=state.evidence_digest, message=describe(state)
        )
        await self.op.events.announce(self._item(), ended)
        # Last, so that a leader that dies before still tells how it ended.
        await self.op.records.remove(self.identity.uid)

    def _advance(self, state: PurgeState, event: PurgeEvent) -> PurgeState:
        after, _ = advance(state, event, now=self.op.clock.wall())
        return after

    async def _keep(self, state: PurgeState) -> None:
        purge = self.identity
        await self.op.records.write(
            purge.uid, purge.name, state, scope=purge.scope, widened=purge.widened
        )

    async def _tell(self, state: PurgeState) -> None:
        item = self._item()
        purge = CachePurge.parse(item)
        status = build_purge_status(
            purge,
            state,
            scope_digest=self.identity.scope_digest,
            widened_to=self.plan.widened_to,
            now=self.op.clock.now(),
        )
        await self.op.statuses.write(
            item, before=purge.status, after=status, manager=PURGE, guarded=True
        )

    def _item(self) -> dict[str, Any]:
        item = self.op.store.get("CachePurge", self.key)
        return item if item is not None else self.purge.to_manifest()


def _note(state: PurgeState, uid: str, fault: str) -> PurgeState:
    """Remember why a member has not answered, for the day its deadline passes."""
    return state.with_member(uid, lambda one: replace(one, detail=fault[:512]))


async def _report_invalid(op: Operator, item: dict[str, Any], message: str) -> float | None:
    before = CachePurgeStatus.model_validate(item.get("status") or {}, by_alias=True)
    status = invalid_purge_status(
        message,
        before=before,
        generation=item["metadata"].get("generation", 0),
        now=op.clock.now(),
    )
    return await op.statuses.write(item, before=before, after=status, manager=PURGE)
