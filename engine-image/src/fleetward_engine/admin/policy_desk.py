"""Taking a pushed bundle: decide, put in force, fence, and only then acknowledge."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace

from fleetward_api.bundle import BundleAck, BundlePush
from fleetward_api.errors import AdminError
from fleetward_api.floors import Floors, merge_floors
from fleetward_api.scope import Scope
from fleetward_engine.admin.fences import Fences
from fleetward_engine.admin.member import Member
from fleetward_engine.admin.policy import (
    Apply,
    PolicyInForce,
    Refuse,
    decide_push,
)
from fleetward_engine.admin.public_texts import PublicTexts
from fleetward_engine.admin.retention import TtlLimits
from fleetward_engine.admin.scheduling import admission_limits, scheduling_policy
from fleetward_engine.admin.shares import share_rules
from fleetward_engine.admin.tiers import host_rules
from fleetward_engine.engine import Engine
from fleetward_engine.server.loop import EngineStopped
from fleetward_engine.server.service import EngineService

logger = logging.getLogger(__name__)


class PolicyDesk:
    """One push at a time; floors that were ever in force are never forgotten."""

    def __init__(
        self, member: Member, service: EngineService, fences: Fences, *, service_uid: str
    ) -> None:
        self._member = member
        self._service = service
        self._fences = fences
        self._service_uid = service_uid
        self._floors = Floors()
        self._ordered = Floors()  # those that purges were carried out at
        self._turn = asyncio.Lock()
        self._public = PublicTexts(service)
        self._after_loading: asyncio.Task[None] | None = None
        service.when_loaded = self._model_loaded

    async def put(self, push: BundlePush) -> BundleAck:
        """Put a bundle in force.

        The policy is set before the fences fall, so that every request from then on is keyed by
        the new floors; the acknowledgement follows the engine's own word.

        Raises:
            AdminError: what is wrong with it, with the generation in force where that is newer.
        """
        async with self._turn:
            verdict = decide_push(
                self._service.policy, push, known=self._floors, service_uid=self._service_uid
            )
            if isinstance(verdict, Refuse):
                raise AdminError(verdict.status, verdict.code, verdict.message)
            if isinstance(verdict, Apply):
                await self._apply(verdict)
            return self.ack()

    def ack(self) -> BundleAck:
        """Our word on what is in force. Raises `AdminError` 409 before the first bundle."""
        policy = self._service.policy
        if policy is None:
            raise AdminError(409, "no_policy", "no bundle is in force yet")
        return BundleAck(
            pod_uid=self._member.pod_uid,
            generation=policy.bundle.generation,
            floors_version=policy.floors.version,
            digest=policy.bundle.digest,
        )

    def raise_floor(self, scope: Scope, floor: int) -> int:
        """Take note of a floor that a purge names; returns the one in force from now on."""
        self._floors = self._floors.at_least(scope, floor)
        in_force = self._floors.floor_of(scope)
        self._ordered = self._ordered.at_least(scope, in_force)
        policy = self._service.policy
        if policy is not None:
            self._service.policy = replace(policy, floors=self._floors)
        return in_force

    async def _apply(self, verdict: Apply) -> None:
        policy = verdict.policy
        before = self._service.policy, self._floors
        if before[0] is not None:
            policy = replace(policy, public_blocks=before[0].public_blocks)
        self._service.policy, self._floors = policy, policy.floors
        try:
            await self._fences.raise_all(verdict.raised, policy.bundle.deletion.in_flight)
            await self._limit(verdict.ttls, divides_anew=verdict.divides_anew)
            await self._share_and_order(policy)
            await self._publish(policy)
        except BaseException:
            # Not acknowledged, so not in force: the same push must do all of it again. Purges that
            # came meanwhile go on, above the floors that they were told.
            self._floors = merge_floors(before[1], self._ordered)
            self._service.policy = before[0] and replace(before[0], floors=self._floors)
            raise
        self._member.log.append(
            "policy",
            {
                "generation": policy.bundle.generation,
                "digest": policy.bundle.digest,
                "floorsVersion": policy.floors.version,
                "epoch": policy.bundle.epoch,
            },
        )
        logger.info("bundle generation %d is in force", policy.bundle.generation)

    async def _limit(self, ttls: TtlLimits | None, *, divides_anew: bool) -> None:
        if ttls is None or self._service.never_ran:
            return

        def limit(engine: Engine) -> None:
            if divides_anew:
                engine.governance.forget_divisions()
            engine.governance.limit_ttls(idle_ttl_ms=ttls.idle_ttl_ms, max_ttl_ms=ttls.max_ttl_ms)
            engine.governance.expire(self._service.clock())

        await self._service.loop.call(limit)

    async def _publish(self, policy: PolicyInForce) -> None:
        """Set apart what its public prefixes take, and have them computed there."""
        plan = await self._public.plan(policy)
        current = self._service.policy
        if current is not None and plan.blocks != current.public_blocks:
            # Purges may have raised floors meanwhile.
            self._service.policy = replace(current, public_blocks=plan.blocks)
            await self._share_and_order(self._service.policy)
        await self._public.declare(policy, plan)

    def _model_loaded(self) -> None:
        self._after_loading = asyncio.create_task(self._publish_late())

    async def _publish_late(self) -> None:
        """For a policy that was in force before the model, whose tokenizer nobody knew."""
        async with self._turn:
            if self._service.policy is not None:
                # Whoever stops the engine in between has no use for it.
                with contextlib.suppress(EngineStopped):
                    await self._publish(self._service.policy)

    async def _share_and_order(self, policy: PolicyInForce) -> None:
        rules = share_rules(policy.bundle, public_blocks=policy.public_blocks)
        order = scheduling_policy(policy.bundle)
        limits = admission_limits(policy.bundle)
        host = host_rules(policy.bundle)

        def apply(engine: Engine) -> None:
            engine.governance.set_share_rules(rules)
            engine.governance.set_host_rules(host)
            engine.set_scheduling(order)
            engine.admission.follow(limits)

        if self._service.never_ran:
            self._service.loop.post(apply)
        else:
            await self._service.loop.call(apply)
