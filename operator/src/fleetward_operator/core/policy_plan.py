"""The status of a CachePolicy: who follows it, and where it is in force."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from fleetward_api.resources import CachePolicy, CachePolicyStatus
from fleetward_api.resources.cache_policy import SaltRotationStatus
from fleetward_operator.core.service_facts import Verdict, fails, holds
from fleetward_operator.core.verdicts import conditions_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """A service that follows the policy, and the policy's generation in force in all its engines.

    `generation` is 0 while nothing of the policy is in force everywhere.
    """

    name: str
    generation: int


def plan_policy(
    policy: CachePolicy,
    followers: Sequence[Follower],
    *,
    default_name: str,
    epoch: SaltRotationStatus,
    now: dt.datetime,
) -> CachePolicyStatus:
    """The status of a policy.

    Args:
        policy: as it was observed.
        followers: the services that follow it.
        default_name: the policy that is the namespace's default, or the empty string.
        epoch: the cache's epoch in force.
        now: an aware time.
    """
    generation = policy.metadata.generation
    behind = [one.name for one in followers if one.generation != generation]
    verdict = _judge(policy, followers, behind, default_name=default_name)
    return CachePolicyStatus(
        message=verdict.message,
        observed_generation=generation,
        services=len(followers),
        enforced_services=len(followers) - len(behind),
        salt_rotation=epoch if policy.spec.salt_rotation else None,
        conditions=conditions_from(
            policy.status.conditions, {"Ready": verdict}, generation=generation, now=now
        ),
    )


def _judge(
    policy: CachePolicy, followers: Sequence[Follower], behind: list[str], *, default_name: str
) -> Verdict:
    if policy.spec.namespace_default and default_name != policy.metadata.name:
        return fails(
            "NotDefault",
            f"CachePolicy {default_name} is older and also says it is the namespace's default: "
            "unset spec.namespaceDefault in one of them.",
        )
    if behind:
        names = ", ".join(sorted(behind)[:5])
        return fails("WaitingForAcks", f"Not in force yet in {len(behind)} service(s): {names}.")
    if not followers:
        return holds("Unused", "No service follows this policy.")
    return holds("InUse", f"In force in all {len(followers)} service(s) that follow it.")
