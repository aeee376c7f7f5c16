"""The retention class of a request: the tenant's, or a stricter one that the request asks for."""

from __future__ import annotations

from collections.abc import Iterable

from fleetward_gateway.admission.facts import PolicyFacts, RetentionLimits
from fleetward_gateway.problem import Problem

HEADER = "Fleetward-Retention-Class"

NOTHING_KEPT = RetentionLimits(store=0)
"""What engines do for a class that their policy lacks."""


def narrowed(base: RetentionLimits, by: RetentionLimits) -> RetentionLimits:
    """The limits that hold when both do: the lower store, the shorter times."""
    return RetentionLimits(
        min(base.store, by.store),
        _shorter(base.idle_ttl_ms, by.idle_ttl_ms),
        _shorter(base.max_ttl_ms, by.max_ttl_ms),
    )


def is_within(limits: RetentionLimits, bound: RetentionLimits) -> bool:
    """True when `limits` keep nothing longer or wider than `bound` does.

    What is not stored at all has no age to compare.
    """
    return limits.store == 0 or narrowed(limits, bound) == limits


def choose_class(requested: str, tenant_class: str, policy: PolicyFacts | None) -> str:
    """The class that goes into the identity token.

    Args:
        requested: the header's value, "" when absent.
        tenant_class: the tenant's own, "" for the policy's retention.
        policy: the service's policy, None when it has none.

    Raises:
        Problem: 400, when the policy has no such class or it would keep more than the tenant's.
    """
    if not requested or requested == tenant_class:
        return tenant_class
    classes = {} if policy is None else policy.classes
    if policy is None or requested not in classes:
        raise _refusal(f"names no class of this service's cache policy ({_listed(classes)})")
    bound = policy.base
    if tenant_class:
        bound = narrowed(bound, classes.get(tenant_class, NOTHING_KEPT))
    if not is_within(narrowed(policy.base, classes[requested]), bound):
        raise _refusal("would keep cache longer or wider than your tenant's class; choose another")
    return requested


def pick_policy(
    policies: Iterable[PolicyFacts], *, namespace: str, name: str
) -> PolicyFacts | None:
    """The policy that a service refers to, else the oldest default of its namespace."""
    here = [policy for policy in policies if policy.namespace == namespace]
    if name:
        return next((policy for policy in here if policy.name == name), None)
    defaults = [policy for policy in here if policy.default]
    return min(defaults, key=lambda policy: (policy.created, policy.uid), default=None)


def _shorter(a: int | None, b: int | None) -> int | None:
    known = [value for value in (a, b) if value is not None]
    return min(known) if known else None


def _listed(classes: Iterable[str]) -> str:
    names = sorted(classes)
    return f"it has: {', '.join(names)}" if names else "it has none"


def _refusal(why: str) -> Problem:
    return Problem(400, "invalid_value", f"The header {HEADER} {why}.", param=HEADER)
