"""KV blocks that requests here will come to need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KvPromises:
    """How the pool is spoken for, in blocks.

    Attributes:
        pool: all blocks.
        by_tenant: what each tenant's requests hold or are expected to come to.
        floors: what others can't take from each known tenant, whether it needs it or not.
    """

    pool: int
    by_tenant: Mapping[str, int]
    floors: Mapping[str, int]

    @property
    def nothing_promised(self) -> bool:
        """Whether no request is here."""
        return not any(self.by_tenant.values())

    def missing_for(self, tenant: str, needed: int, *, headroom_percent: int) -> int:
        """Blocks that lack for another request to leave the headroom; 0 when it may come in.

        One that is alone may always: there is nobody whose growth the headroom is kept for.
        """
        if self.nothing_promised:
            return 0
        headroom = -(-self.pool * headroom_percent // 100)
        tenants = {*self.floors, *self.by_tenant} - {tenant}
        others = sum(max(self.by_tenant.get(one, 0), self.floors.get(one, 0)) for one in tenants)
        room = self.pool - headroom - others - self.by_tenant.get(tenant, 0)
        return max(0, needed - room)
