"""One pass over a Tenant: it is held until its cache is purged, and says whether its keys work."""

from __future__ import annotations

from typing import Any

from fleetward_api.condition_types import initial_conditions
from fleetward_api.resources import InvalidResource, Tenant, TenantStatus
from fleetward_operator.core.events import keys_missing
from fleetward_operator.core.service_facts import fails
from fleetward_operator.core.tenant_deletion import AwaitPurge
from fleetward_operator.core.tenant_plan import plan_tenant
from fleetward_operator.core.verdicts import conditions_from
from fleetward_operator.handlers.context import Operator
from fleetward_operator.handlers.tenant_deletion import let_go_when_purged, take_up


async def reconcile_tenant(op: Operator, key: str) -> float | None:
    """Hold or let go a tenant, and write its status; seconds until the next look."""
    item = op.store.get("Tenant", key)
    if item is None:
        return None
    item = await take_up(op, item)
    awaited: AwaitPurge | None = None
    if "deletionTimestamp" in item["metadata"]:
        awaited = await let_go_when_purged(op, item)
        if awaited is None:
            return None
    try:
        tenant = Tenant.parse(item)
    except InvalidResource as fault:
        wait = await _report_invalid(op, item, fault.message)
        return _soonest(wait, awaited)
    plan = plan_tenant(
        tenant,
        secret_keys(op),
        key_namespace=op.settings.key_namespace,
        now=op.clock.now(),
        leaving=awaited.message if awaited else "",
    )
    wait = await op.statuses.write(item, before=tenant.status, after=plan.status)
    if wait is not None:
        return _soonest(wait, awaited)
    was = {one.type: one.reason for one in tenant.status.conditions}
    judged = next(one for one in plan.status.conditions if one.type == "KeysReady")
    if judged.reason == "KeysMissing" and was.get("KeysReady") != "KeysMissing":
        await op.events.announce(item, keys_missing(judged.message))
    return _soonest(plan.requeue_after, awaited)


def secret_keys(op: Operator) -> dict[str, frozenset[str]]:
    """Names of the keys in each Secret of the key namespace."""
    return {
        item["metadata"]["name"]: frozenset(item.get("data") or {})
        for item in op.store.in_namespace("Secret", op.settings.key_namespace)
    }


def _soonest(wait: float | None, awaited: AwaitPurge | None) -> float | None:
    waits = [one for one in (wait, awaited.look_again_s if awaited else None) if one is not None]
    return min(waits, default=None)


async def _report_invalid(op: Operator, item: dict[str, Any], message: str) -> float | None:
    before = TenantStatus.model_validate(item.get("status") or {}, by_alias=True)
    generation = item["metadata"].get("generation", 0)
    verdicts = {one.type: fails("InvalidSpec", message) for one in initial_conditions("Tenant")}
    status = TenantStatus(
        message=message[:4096],
        observed_generation=generation,
        conditions=conditions_from(
            before.conditions, verdicts, generation=generation, now=op.clock.now()
        ),
    )
    return await op.statuses.write(item, before=before, after=status)
