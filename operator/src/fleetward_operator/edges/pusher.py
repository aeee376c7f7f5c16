"""Puts bundles in force in engines and gateways, and remembers what they answered."""

from __future__ import annotations

import asyncio

from fleetward_api.bundle import BundleAck, BundlePush, GatewayBundle, GatewayPush, PolicyBundle
from fleetward_api.errors import AdmissionError
from fleetward_kube import KubeError
from fleetward_operator.core.observed import Ack
from fleetward_operator.core.pods import PodSeen
from fleetward_operator.edges.bundles import EngineWords
from fleetward_operator.edges.fleet import Fleet
from fleetward_operator.edges.member_client import MemberRefused
from fleetward_operator.edges.members import Members
from fleetward_operator.errors import MemberError

STALE = 409


class Pusher:
    """One push at a time per pod; an ack that is known already is not asked for again."""

    def __init__(self, fleet: Fleet, members: Members, words: EngineWords) -> None:
        self._fleet = fleet
        self._members = members
        self._words = words
        self._locks: dict[str, asyncio.Lock] = {}

    async def push_engine(self, pod: PodSeen, bundle: PolicyBundle) -> Ack:
        """Put a bundle in force in one engine.

        Raises:
            MemberError, AdmissionError, KubeError: why it is not in force; noted in the words.
        """
        async with self._locks.setdefault(pod.uid, asyncio.Lock()):
            # Another worker may have settled on a newer one while this call waited.
            last = self._fleet.ledger.last(bundle.service.uid)
            if last is not None and last.generation > bundle.generation:
                bundle = last
            wanted = Ack(generation=bundle.generation, digest=bundle.digest)
            self._words.notice_restart(pod.uid, pod.container.restarts)
            if self._words.acks.get(pod.uid) == wanted:
                return wanted
            push = BundlePush(bundle=bundle, epoch=self._fleet.epoch_secret)
            try:
                ack = await self._members.push_engine(pod, push)
                _check(ack, wanted, pod)
            except (MemberError, AdmissionError, KubeError) as fault:
                self._words.acks.pop(pod.uid, None)
                self._words.faults[pod.uid] = str(fault)
                await self._learn_generation(pod, bundle, fault)
                raise
            self._words.faults.pop(pod.uid, None)
            self._words.acks[pod.uid] = wanted
            return wanted

    async def push_gateway(self, pod: PodSeen, bundle: GatewayBundle) -> Ack:
        """Put floors in force in one gateway. Raises as `push_engine`."""
        wanted = Ack(generation=bundle.generation, digest=bundle.digest)
        async with self._locks.setdefault(pod.uid, asyncio.Lock()):
            self._words.notice_restart(pod.uid, pod.container.restarts)
            if self._words.acks.get(pod.uid) == wanted:
                return wanted
            try:
                ack = await self._members.push_gateway(pod, GatewayPush(bundle=bundle))
            except MemberRefused as fault:
                await self._learn_floors(pod, fault)
                raise
            _check(ack, wanted, pod)
            self._words.acks[pod.uid] = wanted
            return wanted

    def doubt(self, uid: str) -> None:
        """A member behaves as if it had restarted: the next push asks it again."""
        self._words.acks.pop(uid, None)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._locks.pop(uid, None)
        self._words.forget(uid)
        self._members.forget(uid)

    async def _learn_generation(self, pod: PodSeen, bundle: PolicyBundle, fault: Exception) -> None:
        """An engine that holds a newer generation tells which, so that the next one is above it."""
        if not isinstance(fault, MemberRefused) or fault.status != STALE:
            return
        held = (await self._members.state(pod)).bundle_generation
        # The same number can only have been refused for another content: go above it as well.
        above = held + 1 if held == bundle.generation else held
        self._fleet.ledger.saw_generation(bundle.service.uid, above)

    async def _learn_floors(self, pod: PodSeen, fault: MemberRefused) -> None:
        """A gateway that holds later floors than ours is left from before ours were lost."""
        if fault.status != STALE:
            return
        state = await self._members.state(pod)
        held = max(state.floors_version, state.bundle_generation)
        await self._fleet.floors.lift(held, tenants=self._fleet.store.keys("Tenant"))


def _check(ack: BundleAck, wanted: Ack, pod: PodSeen) -> None:
    """An ack must repeat what was sent: a member can't be fenced by another bundle."""
    if ack.pod_uid != pod.uid:
        raise MemberError(f"{pod.key} acked as pod {ack.pod_uid}, expected {pod.uid}")
    if (ack.generation, ack.digest) != (wanted.generation, wanted.digest):
        raise MemberError(
            f"{pod.key} acked generation {ack.generation}, expected {wanted.generation}"
        )
