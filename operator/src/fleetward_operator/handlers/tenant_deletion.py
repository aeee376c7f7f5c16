"""The finalizer of Tenants: put on while they live, taken off when their cache is purged.

To break it by hand (docs/operator.md): the annotation `fleetward.io/break-glass`, or, where no
operator is left, `kubectl patch ften NAME --type merge -p '{"metadata":{"finalizers":null}}'`.
"""

from __future__ import annotations

from typing import Any

from fleetward_api.resources.metadata import ObjectMeta
from fleetward_kube import KubeError
from fleetward_operator.core.tenant_deletion import (
    FINALIZER,
    AwaitPurge,
    LetGo,
    PurgeSeen,
    StartPurge,
    await_or_release,
    observe_purge,
    plan_deletion,
    purge_name,
)
from fleetward_operator.edges.executor import REFUSALS
from fleetward_operator.edges.store import trim_object
from fleetward_operator.edges.writer import PURGE
from fleetward_operator.handlers.context import Operator
from fleetward_operator.manifests.tenant_purge import build_tenant_purge


async def take_up(op: Operator, item: dict[str, Any]) -> dict[str, Any]:
    """Put the finalizer on a Tenant that lacks it; the Tenant as it is now."""
    metadata = ObjectMeta.model_validate(item["metadata"])
    if metadata.deleting or FINALIZER in metadata.finalizers:
        return item
    written = await _set_finalizers(op, metadata, [*metadata.finalizers, FINALIZER])
    kept = trim_object(written)
    op.own_writes.remember("Tenant", metadata.name, kept)
    return kept


async def let_go_when_purged(op: Operator, item: dict[str, Any]) -> AwaitPurge | None:
    """One step of a deletion: what it waits for, or None when we don't hold it (any more)."""
    metadata = ObjectMeta.model_validate(item["metadata"])
    deadline_s = op.settings.timings.tenant_purge
    step = plan_deletion(
        metadata, _purge_of(op, metadata), deadline_s=deadline_s, now=op.clock.now()
    )
    if isinstance(step, StartPurge):
        step = await _start(op, metadata, step.name)
    if not isinstance(step, LetGo):
        return step
    await op.events.announce(item, step.announcement)
    op.refused_purges.pop(metadata.uid, None)
    try:
        others = [one for one in metadata.finalizers if one != FINALIZER]
        await _set_finalizers(op, metadata, others)
    except KubeError as error:
        # Gone already, by hand or by the leader before us.
        if not error.not_found:
            raise
    return None


def _purge_of(op: Operator, metadata: ObjectMeta) -> PurgeSeen | None:
    item = op.store.get("CachePurge", purge_name(metadata))
    return None if item is None else observe_purge(item)


async def _start(op: Operator, metadata: ObjectMeta, name: str) -> AwaitPurge | LetGo:
    """Make the purge. One that is refused is tried again while the bound lasts."""
    deadline_s = op.settings.timings.tenant_purge
    manifest = build_tenant_purge(
        name, tenant=metadata.name, tenant_uid=metadata.uid, deadline_s=max(1, int(deadline_s))
    )
    why, waited_s = f"CachePurge {name} has not ended", 0.0
    try:
        written = await op.writer.create(manifest, manager=PURGE)
    except KubeError as error:
        if error.status in REFUSALS:
            now = op.clock.monotonic()
            waited_s = now - op.refused_purges.setdefault(metadata.uid, now)
            why = f"CachePurge {name} was refused ({error.message[:256]})"
        elif not error.conflict:
            raise
    else:
        op.own_writes.remember("CachePurge", name, trim_object(written))
    return await_or_release(why, waited_s=waited_s, deadline_s=deadline_s)


async def _set_finalizers(
    op: Operator, metadata: ObjectMeta, finalizers: list[str]
) -> dict[str, Any]:
    # A merge patch on condition: unlike an apply it also takes off what a copied manifest put on.
    patch = {
        "metadata": {"resourceVersion": metadata.resource_version, "finalizers": finalizers or None}
    }
    return await op.writer.merge("Tenant", "", metadata.name, patch=patch, manager=PURGE)
