"""Takes our finalizer off pods that no purge needs any more, whoever put it there."""

from __future__ import annotations

from fleetward_operator.core.purge.state import FINAL
from fleetward_operator.edges.holds import FINALIZER
from fleetward_operator.handlers.context import Operator

LOOK_AGAIN_S = 5.0


async def reconcile_hold(op: Operator, key: str) -> float | None:
    """Release one pod, unless a purge that has not ended may need it."""
    pod = op.store.pod(key)
    if pod is None or FINALIZER not in pod.finalizers:
        return None
    if op.holds.is_needed(pod.uid) or purge_is_running(op):
        return LOOK_AGAIN_S
    await op.holds.drop(pod.namespace, pod.name, pod.uid)
    return None


def purge_is_running(op: Operator) -> bool:
    """Whether any purge has not ended."""
    ended = {phase.value for phase in FINAL}
    purges = (op.store.get("CachePurge", key) for key in op.store.keys("CachePurge"))
    return any(
        (item.get("status") or {}).get("phase") not in ended for item in purges if item is not None
    )
