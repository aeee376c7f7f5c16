"""What each tenant has cached, as the admin API tells it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from fleetward_api.admin import MAX_KV_HOLDINGS
from fleetward_api.admin import KvHolding as TenantHolding
from fleetward_engine.outputs import KvHolding


def tell_holdings(holdings: Iterable[KvHolding], now: float) -> tuple[TenantHolding, ...]:
    """The holdings by tenant and retention class, the largest first, without empty ones.

    Args:
        holdings: by scope and class, as the prefix index keeps them.
        now: monotonic seconds, on the clock of their times.
    """
    together: dict[tuple[str, str], list[KvHolding]] = defaultdict(list)
    for holding in holdings:
        if holding.blocks:
            together[holding.scope.tenant, holding.retention_class].append(holding)
    told = [
        TenantHolding(
            tenant=tenant,
            retention_class=name,
            blocks=sum(part.blocks for part in parts),
            hits=sum(part.hits for part in parts),
            oldest_age_ms=max(_age_ms(part, now) for part in parts),
        )
        for (tenant, name), parts in together.items()
    ]
    told.sort(key=lambda one: (-one.blocks, one.tenant, one.retention_class))
    return tuple(told[:MAX_KV_HOLDINGS])


def _age_ms(holding: KvHolding, now: float) -> int:
    return 0 if holding.oldest is None else max(0, int((now - holding.oldest) * 1000))
