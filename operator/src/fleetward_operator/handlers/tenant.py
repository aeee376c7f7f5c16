"""One pass over a Tenant: its status says whether its API keys work."""

from __future__ import annotations

from typing import Any

from fleetward_api.condition_types import initial_conditions
from fleetward_api.resources import InvalidResource, Tenant, TenantStatus
from fleetward_operator.core.events import keys_missing
from fleetward_operator.core.service_facts import fails
from fleetward_operator.core.tenant_plan import plan_tenant
from fleetward_operator.core.verdicts import conditions_from
from fleetward_operator.handlers.context import Operator


async def reconcile_tenant(op: Operator, key: str) -> float | None:
    """Write a tenant's status; seconds until a key expires."""
    item = op.store.get("Tenant", key)
    if item is None:
        return None
    try:
        tenant = Tenant.parse(item)
    except InvalidResource as fault:
        return await _report_invalid(op, item, fault.message)
    plan = plan_tenant(
        tenant, secret_keys(op), key_namespace=op.settings.key_namespace, now=op.clock.now()
    )
    wait = await op.statuses.write(item, before=tenant.status, after=plan.status)
    if wait is not None:
        return wait
    was = {one.type: one.reason for one in tenant.status.conditions}
    judged = next(one for one in plan.status.conditions if one.type == "KeysReady")
    if judged.reason == "KeysMissing" and was.get("KeysReady") != "KeysMissing":
        await op.events.announce(item, keys_missing(judged.message))
    return plan.requeue_after


def secret_keys(op: Operator) -> dict[str, frozenset[str]]:
    """Names of the keys in each Secret of the key namespace."""
    return {
        item["metadata"]["name"]: frozenset(item.get("data") or {})
        for item in op.store.in_namespace("Secret", op.settings.key_namespace)
    }


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
