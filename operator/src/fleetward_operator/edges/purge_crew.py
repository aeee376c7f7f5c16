"""Carries out the commands of a purge against the fleet, and says what came of them as events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from fleetward_api.admin import PurgeOrder
from fleetward_api.bundle import Deletion, GatewayBundle
from fleetward_api.canonical import canonical_bytes
from fleetward_api.chain_log import ChainHead
from fleetward_api.errors import FleetwardError
from fleetward_api.evidence import PolicyInForce, receipt_fault
from fleetward_api.receipt import receipt_faults
from fleetward_kube import KubeClient, KubeError
from fleetward_kube.watch import list_all
from fleetward_operator.core.pods import PodSeen, observe_pod
from fleetward_operator.core.purge.events import (
    Acked,
    CutMade,
    Died,
    PurgeEvent,
    ReceiptVerified,
    Vanished,
)
from fleetward_operator.core.purge.evidence import (
    PurgeIdentity,
    evidence_header,
    evidence_member,
)
from fleetward_operator.core.purge.state import SETTLED, Member, PurgeState
from fleetward_operator.edges.fleet import Fleet
from fleetward_operator.edges.kinds import collection_path, object_path
from fleetward_operator.edges.members import Members
from fleetward_operator.edges.pusher import Pusher
from fleetward_operator.errors import MemberError
from fleetward_operator.manifests.names import ENGINE_COMPONENT, GATEWAY_COMPONENT

CALLS_AT_ONCE = 32
RECEIPT_TIMEOUT_S = 20.0

MEMBERS_SELECTOR = (
    "app.kubernetes.io/part-of=fleetward,app.kubernetes.io/component in (engine,gateway)"
)

MemberCall = Callable[[Member, PodSeen], Awaitable[PurgeEvent]]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a member gave: an event, or why there is none yet."""

    uid: str
    event: PurgeEvent | None
    fault: str = ""


class PurgeCrew:
    """The hands of a purge. Every method may be called again with the same arguments."""

    def __init__(
        self,
        client: KubeClient,
        fleet: Fleet,
        members: Members,
        pusher: Pusher,
        *,
        wall: Callable[[], float],
    ) -> None:
        self._client = client
        self._fleet = fleet
        self._members = members
        self._pusher = pusher
        self._wall = wall
        self._calls = asyncio.Semaphore(CALLS_AT_ONCE)

    async def make_cut(self, purge: PurgeIdentity) -> CutMade:
        """Raise the floor, then record who exists.

        In this order: a pod that starts after the list gets its first bundle with the raised
        floor, so it can hold nothing from before the cut.
        """
        known = self._engines_and_gateways()
        stored = await self._fleet.floors.raise_floor(purge.scope)
        listed = await self._list_members()
        pods = {pod.uid: pod for pod in (*known, *listed)}
        return CutMade(
            cut=stored.floors.version,
            floor=stored.floors.floor_of(purge.scope),
            resource_version=stored.version,
            members=tuple(self._member(pod) for pod in pods.values() if _could_hold(pod)),
        )

    async def look(self, state: PurgeState) -> list[PurgeEvent]:
        """What the kubelet says about members that have not settled."""
        events: list[PurgeEvent] = []
        for member in state.members:
            if member.standing in SETTLED:
                continue
            pod = self._pod(member) or await self._confirm(member)
            pod = pod or self._fleet.store.ended_pod(member.uid)
            if pod is None:
                why = "its pod is gone and nobody said how its containers ended"
                events.append(Vanished(uid=member.uid, why=why))
            elif pod.ended:
                events.append(Died(uid=member.uid, words=pod.ended_words, at=pod.ended_at))
        return events

    async def fence(self, state: PurgeState, uids: Sequence[str]) -> list[Answer]:
        """Push today's floors to these members, all at once."""
        return await self._all(state, uids, self._fence_one)

    async def ask_receipts(
        self, state: PurgeState, uids: Sequence[str], purge: PurgeIdentity
    ) -> list[Answer]:
        """Order the purge from these members, all at once."""

        async def ask(member: Member, pod: PodSeen) -> PurgeEvent:
            return await self._ask_one(state, purge, member, pod)

        return await self._all(state, uids, ask)

    def policies(self, state: PurgeState) -> tuple[PolicyInForce, ...]:
        """The bundles in force in the services whose engines are members."""
        found: dict[str, PolicyInForce] = {}
        for member in state.members:
            last = self._fleet.ledger.last(member.service_uid) if member.service_uid else None
            if last is not None:
                found[member.service_uid] = PolicyInForce(
                    service=f"{last.service.namespace}/{last.service.name}",
                    service_uid=last.service.uid,
                    generation=last.generation,
                    policy_name=last.policy_name,
                    policy_generation=last.policy_generation,
                )
        return tuple(found[uid] for uid in sorted(found))

    async def _all(self, state: PurgeState, uids: Sequence[str], call: MemberCall) -> list[Answer]:
        members = [member for member in state.members if member.uid in set(uids)]
        return await asyncio.gather(*(self._one(member, call) for member in members))

    async def _one(self, member: Member, call: MemberCall) -> Answer:
        pod = self._pod(member)
        if pod is None or not pod.reachable:
            return Answer(member.uid, None, "its pod is not running")
        async with self._calls:
            try:
                return Answer(member.uid, await call(member, pod))
            except (FleetwardError, KubeError, ValidationError) as fault:
                logger.info("purge: %s/%s: %s", member.namespace, member.name, fault)
                return Answer(member.uid, None, str(fault))

    async def _fence_one(self, member: Member, pod: PodSeen) -> PurgeEvent:
        floors = self._fleet.floors.current.floors
        if member.kind == GATEWAY_COMPONENT:
            await self._pusher.push_gateway(pod, GatewayBundle.of(floors))
            return Acked(uid=member.uid, floors_version=floors.version)
        bundle = self._fleet.bundle_of(f"{pod.namespace}/{pod.service}", member.service_uid)
        if bundle is None:
            return await self._fence_unruled(member, pod)
        await self._pusher.push_engine(pod, bundle)
        return Acked(uid=member.uid, floors_version=bundle.floors.version)

    async def _fence_unruled(self, member: Member, pod: PodSeen) -> PurgeEvent:
        """An engine that never had a bundle reads and writes no cache; its first has the floors."""
        state = await self._members.state(pod)
        if state.bundle_generation:
            raise MemberError(f"{pod.key} holds a bundle of a service that is gone")
        return Acked(uid=member.uid, floors_version=self._fleet.floors.current.floors.version)

    async def _ask_one(
        self, state: PurgeState, purge: PurgeIdentity, member: Member, pod: PodSeen
    ) -> PurgeEvent:
        # Pushed again only if it restarted since its fence: then it knows no floors any more.
        await self._fence_one(member, pod)
        left_s = max(0.0, state.deadline - self._wall())
        deletion = self._deletion(member)
        order = PurgeOrder(
            purge_uid=purge.uid,
            scope=purge.scope.to_wire(),
            scope_digest=purge.scope_digest,
            floor=state.floor,
            in_flight=deletion.in_flight,
            scrub=deletion.scrub,
            deadline_ms=int(left_s * 1000),
        )
        timeout_s = min(RECEIPT_TIMEOUT_S, max(1.0, left_s))
        try:
            signed, admitted = await self._members.purge(pod, order, timeout_s=timeout_s)
        except MemberError:
            self._pusher.doubt(pod.uid)
            raise
        bound = replace(member, binding=admitted.binding)
        header = evidence_header(
            purge, state, previous=ChainHead(), operator_key="", epoch=0, policies=()
        )
        fault = receipt_fault(signed, member=evidence_member(bound), header=header)
        if fault is not None:
            raise MemberError(fault)
        return ReceiptVerified(
            uid=member.uid,
            floor=signed.payload.floor,
            receipt=canonical_bytes(signed).decode(),
            binding=admitted.binding,
            faults=tuple(receipt_faults(signed.payload)),
        )

    def _deletion(self, member: Member) -> Deletion:
        last = self._fleet.ledger.last(member.service_uid) if member.service_uid else None
        return last.deletion if last else Deletion(scrub=True, in_flight="Abort")

    def _engines_and_gateways(self) -> list[PodSeen]:
        return [pod for pod in self._fleet.store.pods() if self._is_member(pod)]

    async def _list_members(self) -> list[PodSeen]:
        """The members by a live list: the watch may be some milliseconds behind."""
        query = {"labelSelector": MEMBERS_SELECTOR}
        listing = await list_all(self._client, collection_path("Pod"), query=query, page_size=500)
        pods = [observe_pod(item) for item in listing.items]
        return [pod for pod in pods if self._is_member(pod)]

    def _is_member(self, pod: PodSeen) -> bool:
        engine = pod.component == ENGINE_COMPONENT and bool(pod.service)
        return engine or self._fleet.store.is_gateway(pod)

    def _member(self, pod: PodSeen) -> Member:
        service_uid = ""
        if pod.component == ENGINE_COMPONENT:
            service = self._fleet.store.get("InferenceService", f"{pod.namespace}/{pod.service}")
            service_uid = "" if service is None else str(service["metadata"]["uid"])
        return Member(
            kind=pod.component,
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            service_uid=service_uid,
        )

    def _pod(self, member: Member) -> PodSeen | None:
        pod = self._fleet.store.pod(f"{member.namespace}/{member.name}")
        return pod if pod is not None and pod.uid == member.uid else None

    async def _confirm(self, member: Member) -> PodSeen | None:
        """A pod that the watch does not show, read live before it counts as gone."""
        path = object_path("Pod", member.namespace, member.name)
        try:
            pod = observe_pod(await self._client.request("GET", path))
        except KubeError as error:
            if error.not_found:
                return None
            raise
        return pod if pod.uid == member.uid else None


def _could_hold(pod: PodSeen) -> bool:
    """Whether a process of this pod may hold cache at the cut.

    Only a container that runs can have been given a bundle, and without one it stores nothing; the
    next one to start gets the raised floor.
    """
    return pod.container.running
