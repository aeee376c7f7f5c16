"""One pass over an InferenceService: observe, plan, execute, status."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from fleetward_api.errors import FleetwardError
from fleetward_api.resources import InferenceService, InferenceServiceStatus
from fleetward_kube import KubeError
from fleetward_operator.core.gate import claim_of, decide_name_conflict
from fleetward_operator.core.observed import ServiceObserved
from fleetward_operator.core.pods import PodSeen
from fleetward_operator.core.probe_seen import probe_due_in
from fleetward_operator.core.refused_status import invalid_status
from fleetward_operator.core.service_plan import STALE_S, ServicePlan, plan_service
from fleetward_operator.edges.catalog import Invalid
from fleetward_operator.edges.executor import Owner
from fleetward_operator.edges.kinds import CHILD_KINDS
from fleetward_operator.errors import NotLeading
from fleetward_operator.handlers.context import Operator
from fleetward_operator.manifests.names import bundle_name, trust_name

BLOCKED_S = 30.0
# A floor that is raised while bundles are under way is pushed before the status speaks.
PUSH_ROUNDS = 2
PUSH_DELAYS_S = (0.3, 0.5, 1.0, 2.0, 3.0, 5.0)


async def reconcile_service(op: Operator, key: str) -> float | None:
    """Bring one service and its children to what its spec says; seconds until the next look."""
    item = op.store.get("InferenceService", key)
    service = op.catalog.service(key)
    if item is None or service is None or "deletionTimestamp" in item["metadata"]:
        # Children follow their owner by garbage collection; nothing of ours holds a service.
        op.metrics.isolation.forget(key)
        return None
    if isinstance(service, Invalid):
        return await _report_invalid(op, item, service)
    seen = observe_service(op, key, service)
    plan = plan_service(seen, config=op.config, now=op.clock.now())
    outcome = await op.executor.execute(plan.actions, owner=_owner(service))
    if outcome.parent_gone:
        return None
    for announcement in outcome.announcements:
        await op.events.announce(item, announcement)
    if outcome.put_off is not None:
        raise outcome.put_off
    for _ in range(PUSH_ROUNDS):
        await asyncio.gather(_push_due(op, seen, plan), _read_states(op, plan.reads))
        if not _is_current(op, key, service):
            # Another worker may have settled on its new rules: ours, of before, must not follow.
            return 0.0
        seen = replace(
            observe_service(op, key, service),
            taken=tuple(outcome.taken),
            refused=tuple(outcome.refused),
        )
        plan = plan_service(seen, config=op.config, now=op.clock.now())
        if not plan.pushes:
            break
    if any(due_in == 0.0 for _, due_in in probes_due(op, seen)):
        op.enqueue("isolation", key)
    wait = await op.statuses.write(item, before=service.status, after=plan.status)
    if wait is None:
        for announcement in plan.announcements:
            await op.events.announce(item, announcement)
    # Whoever stands in a child's way may go without a word.
    blocked = BLOCKED_S if outcome.taken or outcome.refused else None
    return _soonest([wait, blocked, outcome.look_again_s, _next_look(op, plan)])


def _is_current(op: Operator, key: str, service: InferenceService) -> bool:
    newest = op.catalog.service(key)
    if not isinstance(newest, InferenceService):
        return False
    facts = [(one.metadata.uid, one.metadata.generation) for one in (newest, service)]
    return facts[0] == facts[1]


def observe_service(op: Operator, key: str, service: InferenceService) -> ServiceObserved:
    """What the store, the ledger and the engines' words say about a service now."""
    pods = op.store.pods_of(key)
    for pod in pods:
        op.words.notice_restart(pod.uid, pod.container.restarts)
    claim = claim_of(service)
    return ServiceObserved(
        service=service,
        children=_children(op, service),
        pods=pods,
        choice=op.fleet.choice(service),
        bundle=op.fleet.bundle(service),
        name_conflict=decide_name_conflict(claim, op.catalog.rivals(claim)),
        acks=op.words.acks,
        states=op.words.states,
        push_faults=op.words.faults,
        probes=op.words.probes,
        stale=op.words.stale((pod.uid for pod in pods), before=op.clock.monotonic() - STALE_S),
    )


def probes_due(op: Operator, seen: ServiceObserved) -> Iterator[tuple[PodSeen, float]]:
    """The engines to probe, each with the seconds until it is due."""
    named = seen.bundle_name
    for pod in seen.ready:
        if named is not None and seen.has_acked(pod):
            due_in = probe_due_in(
                seen.probes.get(pod.uid),
                named,
                now=op.clock.monotonic(),
                interval_s=op.settings.isolation_probe_interval_s,
            )
            yield pod, due_in


def _children(op: Operator, service: InferenceService) -> dict[tuple[str, str], dict[str, Any]]:
    namespace, name = service.metadata.namespace, service.metadata.name
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for kind in CHILD_KINDS:
        names = (trust_name(name), bundle_name(name)) if kind == "ConfigMap" else (name,)
        for child in names:
            item = op.store.get(kind, f"{namespace}/{child}")
            if item is not None:
                found[kind, child] = item
    return found


async def _report_invalid(op: Operator, item: dict[str, Any], fault: Invalid) -> float | None:
    before = read_status(item)
    status = invalid_status(
        fault.message,
        before=before.conditions,
        generation=item["metadata"].get("generation", 0),
        now=op.clock.now(),
    )
    return await op.statuses.write(item, before=before, after=status)


def read_status(item: dict[str, Any]) -> InferenceServiceStatus:
    """A service's status on its own; an empty one where it cannot be read."""
    try:
        return InferenceServiceStatus.model_validate(item.get("status") or {}, by_alias=True)
    except ValueError:
        return InferenceServiceStatus()


def _owner(service: InferenceService) -> Owner:
    metadata = service.metadata
    return Owner(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid)


async def _push_due(op: Operator, seen: ServiceObserved, plan: ServicePlan) -> None:
    bundle = seen.bundle
    if bundle is None:
        return
    now = op.clock.monotonic()
    due = [pod for pod in plan.pushes if op.push_retries.get(pod.uid, (0, 0.0))[1] <= now]

    async def push(pod: PodSeen) -> None:
        try:
            await op.pusher.push_engine(pod, bundle)
        except NotLeading:
            raise
        except (FleetwardError, KubeError):
            failures = op.push_retries.get(pod.uid, (0, 0.0))[0]
            delay = PUSH_DELAYS_S[min(failures, len(PUSH_DELAYS_S) - 1)]
            op.push_retries[pod.uid] = (failures + 1, op.clock.monotonic() + delay)
        else:
            op.push_retries.pop(pod.uid, None)

    await _all(push(pod) for pod in due)


async def _read_states(op: Operator, pods: Iterable[PodSeen]) -> None:
    async def read(pod: PodSeen) -> None:
        try:
            state = await op.members.state(pod)
        except (FleetwardError, KubeError):
            # Its push says why it can't be reached. One in service may only be busy.
            if not pod.ready:
                op.words.states.pop(pod.uid, None)
        else:
            op.words.stated(pod.uid, state, op.clock.monotonic())

    await _all(read(pod) for pod in pods)


async def _all(calls: Iterable[Awaitable[None]]) -> None:
    await asyncio.gather(*calls)


def _next_look(op: Operator, plan: ServicePlan) -> float | None:
    now = op.clock.monotonic()
    retries = [
        max(0.05, op.push_retries[pod.uid][1] - now)
        for pod in plan.pushes
        if pod.uid in op.push_retries
    ]
    return _soonest([plan.requeue_after, *retries])


def _soonest(delays: Iterable[float | None]) -> float | None:
    return min((delay for delay in delays if delay is not None), default=None)
