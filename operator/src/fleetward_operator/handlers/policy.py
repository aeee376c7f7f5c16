"""One pass over a CachePolicy: its status says who follows it and where it is in force."""

from __future__ import annotations

from typing import Any

from fleetward_api.conditions import find_condition, format_time
from fleetward_api.resources import CachePolicyStatus, InferenceService
from fleetward_api.resources.cache_policy import SaltRotationStatus
from fleetward_operator.core.policy import namespace_default
from fleetward_operator.core.policy_plan import Follower, plan_policy
from fleetward_operator.core.service_facts import fails
from fleetward_operator.core.verdicts import conditions_from
from fleetward_operator.edges.catalog import Invalid
from fleetward_operator.handlers.context import Operator


async def reconcile_policy(op: Operator, key: str) -> float | None:
    """Write a policy's status."""
    item = op.store.get("CachePolicy", key)
    policy = op.catalog.policy(key)
    if item is None or policy is None:
        return None
    if isinstance(policy, Invalid):
        return await _report_invalid(op, item, policy)
    namespace = policy.metadata.namespace
    default = namespace_default(op.catalog.policies(namespace))
    status = plan_policy(
        policy,
        followers(op, namespace, policy.metadata.name),
        default_name=default.metadata.name if default else "",
        epoch=SaltRotationStatus(
            epoch=op.fleet.epoch.number, rotated_at=format_time(op.fleet.epoch.rotated_at)
        ),
        now=op.clock.now(),
    )
    return await op.statuses.write(item, before=policy.status, after=status)


def followers(op: Operator, namespace: str, policy: str) -> list[Follower]:
    """The services of a namespace that follow a policy, with what their status says of it."""
    found = []
    for item in op.store.in_namespace("InferenceService", namespace):
        service = op.catalog.service(f"{namespace}/{item['metadata']['name']}")
        if isinstance(service, InferenceService) and op.fleet.choice(service).name == policy:
            found.append(Follower(name=service.metadata.name, generation=enforced(service, policy)))
    return found


def enforced(service: InferenceService, policy: str) -> int:
    """Generation of a policy that is in force in all engines of a service, else 0."""
    condition = find_condition(service.status.conditions, "CachePolicyEnforced")
    in_force = service.status.cache_policy
    if condition is None or condition.status != "True" or in_force is None:
        return 0
    if in_force.name != policy:
        # It follows this one now, and has told us only of the one before.
        return 0
    return in_force.generation or 0


async def _report_invalid(op: Operator, item: dict[str, Any], fault: Invalid) -> float | None:
    before = CachePolicyStatus.model_validate(item.get("status") or {}, by_alias=True)
    generation = item["metadata"].get("generation", 0)
    status = CachePolicyStatus(
        message=fault.message[:4096],
        observed_generation=generation,
        conditions=conditions_from(
            before.conditions,
            {"Ready": fails("InvalidSpec", fault.message)},
            generation=generation,
            now=op.clock.now(),
        ),
    )
    return await op.statuses.write(item, before=before, after=status)
