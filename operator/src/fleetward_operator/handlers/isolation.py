"""Probing the engines of a service: whether they separate what the policy in force separates.

Apart from the passes over services, which a busy engine must not keep waiting.
"""

from __future__ import annotations

import asyncio
import math

from fleetward_api.bundle import PolicyBundle
from fleetward_api.errors import FleetwardError
from fleetward_api.isolation_probe import ProbeJudgement, ProbeOrder, judge_probe
from fleetward_api.resources import InferenceService
from fleetward_kube import KubeError
from fleetward_operator.core.observed import ServiceObserved
from fleetward_operator.core.pods import PodSeen
from fleetward_operator.core.probe_seen import CHANGED, UNANSWERED, UNSUPPORTED, remember_probe
from fleetward_operator.edges.member_client import MemberRefused
from fleetward_operator.errors import NotLeading
from fleetward_operator.handlers.context import Operator
from fleetward_operator.handlers.service import observe_service, probes_due

UNKNOWN_CALL = 404


async def reconcile_isolation(op: Operator, key: str) -> float | None:
    """Probe the engines of one service that are due; seconds until the next one is."""
    service = op.catalog.service(key)
    if not isinstance(service, InferenceService):
        op.metrics.isolation.forget(key)
        return None
    seen = observe_service(op, key, service)
    bundle = seen.bundle
    due = [pod for pod, due_in in probes_due(op, seen) if due_in == 0.0]
    if bundle is not None:
        await asyncio.gather(*(_probe(op, key, pod, bundle) for pod in due))
    if due:
        op.enqueue("service", key)
        # As it is by now: rules that were replaced meanwhile must not be settled on again.
        service = op.catalog.service(key)
        if not isinstance(service, InferenceService):
            op.metrics.isolation.forget(key)
            return None
        seen = observe_service(op, key, service)
    _show(op, key, seen)
    soonest = min((due_in for _, due_in in probes_due(op, seen)), default=math.inf)
    return None if soonest == math.inf else soonest


async def _probe(op: Operator, key: str, pod: PodSeen, bundle: PolicyBundle) -> None:
    shown = await _ask(op, pod, bundle)
    if shown.verdict == "Failed":
        op.metrics.isolation.failed(key)
    process = (pod.uid, pod.container.restarts)
    if process not in {(one.uid, one.container.restarts) for one in op.store.pods_of(key)}:
        # It went, or restarted, while it was asked.
        return
    op.words.probes[pod.uid] = remember_probe(
        op.words.probes.get(pod.uid),
        bundle,
        shown,
        at=op.clock.monotonic(),
        wall=op.clock.wall(),
    )


async def _ask(op: Operator, pod: PodSeen, bundle: PolicyBundle) -> ProbeJudgement:
    order = ProbeOrder(deadline_ms=int(op.settings.timings.isolation_probe * 1000))
    try:
        report = await op.members.probe_isolation(pod, order)
    except NotLeading:
        raise
    except MemberRefused as fault:
        return UNSUPPORTED if fault.status == UNKNOWN_CALL else UNANSWERED
    except (FleetwardError, KubeError):
        return UNANSWERED
    judgement = judge_probe(report)
    if judgement.verdict == "Proved" and report.bundle_digest != bundle.digest:
        # True of rules that are not these.
        return CHANGED
    return judgement


def _show(op: Operator, key: str, seen: ServiceObserved) -> None:
    if not seen.ready:
        # Its last proof would only grow old, until an alert asks for another.
        op.metrics.isolation.forget(key)
        return
    probes = [seen.probes[pod.uid] for pod in seen.ready if pod.uid in seen.probes]
    proofs = [probe.proved_at for probe in probes if probe.proved_at is not None]
    # One that was never proved stops the clock of the others: only so is it missed in time.
    whole = len(proofs) == len(seen.ready)
    op.metrics.isolation.show(
        key,
        broken=sum(probe.is_broken for probe in probes),
        proved_at=min(proofs) if whole else None,
    )
