"""How long cache may live: per request from its class, and live when a policy gets stricter.

Every number of a policy is a maximum. So dropping cache early is always allowed, and where it can't
be told which class an entry came from, a stricter class shortens them all.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetward_api.bundle import Retention, RetentionClass


@dataclass(frozen=True, slots=True)
class TtlLimits:
    """Limits on time to live, milliseconds; None is no limit."""

    idle_ttl_ms: int | None
    max_ttl_ms: int | None


def effective_retention(retention: Retention, name: str) -> RetentionClass:
    """The class a request falls under; ``""`` is the policy's own retention.

    Every number is a maximum, so a class can shorten the policy's times, never lengthen them.
    """
    if not name:
        return RetentionClass(
            store="Device", idle_ttl_ms=retention.idle_ttl_ms, max_ttl_ms=retention.max_ttl_ms
        )
    named = retention.classes.get(name)
    if named is None:
        # Strictest reading of a class the policy does not know (any more): store nothing.
        return RetentionClass(store="None", idle_ttl_ms=None, max_ttl_ms=None)
    return RetentionClass(
        store=named.store,
        idle_ttl_ms=shorter(named.idle_ttl_ms, retention.idle_ttl_ms),
        max_ttl_ms=shorter(named.max_ttl_ms, retention.max_ttl_ms),
    )


def shorter(first: int | None, second: int | None) -> int | None:
    """The smaller of two time limits, where None is no limit."""
    limits = [limit for limit in (first, second) if limit is not None]
    return min(limits, default=None)


def live_limits(before: Retention, after: Retention) -> TtlLimits:
    """What to shorten everything cached to when ``after`` takes over from ``before``.

    The policy's own limits always hold. An entry does not know its class, so a class that got
    stricter (or lost its right to store) bounds all entries made until now, once.
    """
    idle, longest = after.idle_ttl_ms, after.max_ttl_ms
    for name in before.classes:
        old, new = effective_retention(before, name), effective_retention(after, name)
        if old.store == "None":
            continue
        if new.store == "None":
            return TtlLimits(idle_ttl_ms=0, max_ttl_ms=0)
        idle = shorter(idle, _if_shorter(old.idle_ttl_ms, new.idle_ttl_ms))
        longest = shorter(longest, _if_shorter(old.max_ttl_ms, new.max_ttl_ms))
    return TtlLimits(idle_ttl_ms=idle, max_ttl_ms=longest)


def _if_shorter(old: int | None, new: int | None) -> int | None:
    return new if shorter(old, new) != old else None
