"""Carrying out purge orders: fence, remove, wait for what was in flight, look again, sign.

An order is carried out once. Whoever asks again, now or later, gets the same bytes.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from fleetward_api.admin import PurgeOrder
from fleetward_api.canonical import canonical_bytes
from fleetward_api.chain_log import ChainHead
from fleetward_api.errors import AdminError, ScopeInvalid
from fleetward_api.memory_guard import rinse_small_chunks
from fleetward_api.receipt import RECEIPT_DOMAIN
from fleetward_api.scope import Scope
from fleetward_api.signed import sign
from fleetward_engine.admin.fences import Fences
from fleetward_engine.admin.member import Member
from fleetward_engine.admin.policy import PolicyInForce
from fleetward_engine.admin.policy_desk import PolicyDesk
from fleetward_engine.admin.removal import (
    Findings,
    Removal,
    Witness,
    build_receipt,
    drop,
    look_again,
)
from fleetward_engine.engine import Engine
from fleetward_engine.outputs import FenceResult, Overwritten
from fleetward_engine.server.service import EngineService
from fleetward_engine.version import engine_version

RECEIPTS_KEPT = 1024
POLL_S = 0.02
CHUNK_BYTES = 16 * 1024 * 1024
"""Overwritten before looking at the clock: a few milliseconds of memory bandwidth."""
MIN_SLICE_S = 0.01
FINISH_SHARE = 0.8
"""Of an order's time, how much requests in flight get to finish before they are aborted."""


@dataclass(frozen=True, slots=True)
class _Known:
    order: PurgeOrder
    receipt: asyncio.Task[bytes]


class PurgeDesk:
    """Purge orders by uid. ``wall`` is epoch seconds."""

    def __init__(
        self,
        member: Member,
        service: EngineService,
        *,
        fences: Fences,
        policies: PolicyDesk,
        wall: Callable[[], float],
    ) -> None:
        self._member = member
        self._service = service
        self._fences = fences
        self._policies = policies
        self._wall = wall
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._turn = asyncio.Lock()

    async def purge(self, order: PurgeOrder) -> bytes:
        """The canonical bytes of the signed receipt for this order.

        Raises:
            AdminError: 400 for a scope this engine can't separate, 409 when the uid was used for
                another scope or floor, 504 when the order's time is over (asking again waits on).
        """
        known = self._known.get(order.purge_uid) or self._begin(order)
        if _what(known.order) != _what(order):
            message = f"purge {order.purge_uid} was ordered before for another scope or floor"
            raise AdminError(409, "purge_conflict", message)
        patience = max(order.deadline_ms / 1000, POLL_S)
        done, _ = await asyncio.wait({known.receipt}, timeout=patience)
        if not done:
            message = "the removal is still under way; ask again for the receipt"
            raise AdminError(504, "deadline_exceeded", message)
        return known.receipt.result()

    def _begin(self, order: PurgeOrder) -> _Known:
        scope = separable_scope(order, self._service.policy)
        known = _Known(order, asyncio.create_task(self._in_turn(order, scope)))
        self._known[order.purge_uid] = known
        known.receipt.add_done_callback(lambda task: self._forget_failed(order.purge_uid, task))
        for uid in [uid for uid, kept in self._known.items() if kept.receipt.done()]:
            if len(self._known) <= RECEIPTS_KEPT:
                break
            del self._known[uid]
        return known

    def _forget_failed(self, uid: str, task: asyncio.Task[bytes]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._known.pop(uid, None)

    async def _in_turn(self, order: PurgeOrder, scope: Scope) -> bytes:
        # The fence falls at once; removals go one after another, so that each has its own place
        # in the log.
        started = self._milliseconds()
        floor = self._policies.raise_floor(scope, order.floor)
        fenced = await self._fences.fence(scope, floor, order.in_flight)
        until = self._service.clock() + FINISH_SHARE * order.deadline_ms / 1000
        async with self._turn:
            before = self._member.log.head
            removal, findings, late = await self._make_gone(order, scope, floor, until=until)
            after = self._record(order, floor, removal, findings)
        witness = self._witness(floor, fenced, late=late, started=started, chain=(before, after))
        receipt = build_receipt(order, removal, findings, witness)
        signed = sign(receipt, self._member.keys.receipt_key, domain=RECEIPT_DOMAIN)
        return canonical_bytes(signed)

    async def _make_gone(
        self, order: PurgeOrder, scope: Scope, floor: int, *, until: float
    ) -> tuple[Removal, Findings, int]:
        """Remove, overwrite and look again, with the number of requests aborted for time.

        A request that was authorised below the floor may arrive at any moment. It leaves no cache,
        but its blocks carry bytes of the scope while it runs: so all of it is done again.
        """
        removal, late = Removal(), 0
        while True:
            more, aborted = await self._remove(scope, floor, until=until)
            removal, late = removal.then(more), late + aborted
            if order.scrub:
                removal = await self._overwrite(removal, scope, floor)
            found = await self._look_again(order, removal, scope, floor, until=until)
            if found is not None:
                findings, aborted = found
                return removal, findings, late + aborted

    async def _remove(self, scope: Scope, floor: int, *, until: float) -> tuple[Removal, int]:
        """What left the index, and how many requests in flight had to be aborted for time."""
        if self._service.never_ran:
            # No request was ever taken, so there is no cache: the engine starts above the floor.
            return Removal(), 0
        call = self._service.loop.call
        removal = await call(lambda engine: drop(engine, scope, floor))
        late = 0
        waited = False
        while await call(lambda engine: engine.governance.in_flight(scope, floor)):
            waited = True
            if self._service.clock() >= until:
                fence = await call(lambda engine: engine.governance.fence(scope, floor, "Abort"))
                late += fence.aborted
                break
            await asyncio.sleep(POLL_S)
        if waited:
            removal = removal.then(await call(lambda engine: drop(engine, scope, floor)))
        return removal, late

    async def _overwrite(self, removal: Removal, scope: Scope, floor: int) -> Removal:
        """Overwrite slice by slice, with steps in between: nobody else waits for the whole."""
        clock, loop = self._service.clock, self._service.loop

        def some(engine: Engine) -> Overwritten:
            until = clock() + slice_seconds(loop.step_seconds)
            done = Overwritten()
            while True:
                more = engine.governance.overwrite(scope, floor, limit_bytes=CHUNK_BYTES)
                done += more
                if not more or clock() >= until:
                    return done

        while not self._service.never_ran:
            done = await loop.call(some)
            if not done:
                break
            removal = removal.overwrote(done)
        return removal

    async def _look_again(
        self, order: PurgeOrder, removal: Removal, scope: Scope, floor: int, *, until: float
    ) -> tuple[Findings, int] | None:
        """What is left, and how many requests had to be aborted; None while one may still run."""
        if self._service.never_ran:
            return Findings(), 0
        clock = self._service.clock

        def look(engine: Engine) -> tuple[Findings, int] | None:
            late = 0
            if engine.governance.in_flight(scope, floor):
                if clock() < until:
                    return None
                late = engine.governance.fence(scope, floor, "Abort").aborted
            if order.scrub:
                rinse_small_chunks()  # of this thread, which computed the scope's KV
            found = look_again(engine, scope, floor, keys=removal.keys, scrub=order.scrub)
            return found, late

        return await self._service.loop.call(look)

    def _record(
        self, order: PurgeOrder, floor: int, removal: Removal, findings: Findings
    ) -> ChainHead:
        return self._member.log.append(
            "purge",
            {
                "purgeUid": order.purge_uid,
                "scopeDigest": order.scope_digest,
                "floor": floor,
                "entries": removal.entries,
                "blocks": removal.overwritten.blocks,
                "bytes": removal.overwritten.bytes,
                "probeHits": findings.probe_hits,
                "recount": findings.recount,
            },
        )

    def _witness(
        self,
        floor: int,
        fenced: FenceResult,
        *,
        late: int,
        started: int,
        chain: tuple[ChainHead, ChainHead],
    ) -> Witness:
        return Witness(
            pod_uid=self._member.pod_uid,
            key_id=self._member.keys.receipt_key.verify_key.key_id,
            floor=floor,
            finished=max(0, fenced.finishing - late),
            aborted=fenced.aborted + late,
            before=chain[0],
            after=chain[1],
            started_at=started,
            finished_at=self._milliseconds(),
            versions={"fleetward-engine": engine_version()},
        )

    def _milliseconds(self) -> int:
        return int(self._wall() * 1000)


def slice_seconds(step_seconds: float) -> float:
    """How long to overwrite between two steps: no longer than a step itself takes."""
    return max(MIN_SLICE_S, step_seconds)


def separable_scope(order: PurgeOrder, policy: PolicyInForce | None) -> Scope:
    """The order's scope, which the rules in force must tell apart.

    Raises:
        AdminError: 400 for one that they don't: what it left may lie in others' blocks, and a purge
            that silently did less would be worse than none.
    """
    try:
        scope = Scope.from_wire(order.scope)
    except ScopeInvalid as fault:
        raise AdminError(400, "invalid_scope", fault.message) from fault
    if policy is not None and not policy.bundle.separates(scope.kind):
        bundle = policy.bundle
        message = (
            f"cache here is shared within a tenant (isolation {bundle.isolation}, permissionScopes "
            f"{bundle.permission_scopes}): a purge of a {scope.kind} must be widened to the tenant"
        )
        raise AdminError(400, "unsupported_scope", message)
    return scope


def _what(order: PurgeOrder) -> tuple[object, ...]:
    return order.scope, order.scope_digest, order.floor
