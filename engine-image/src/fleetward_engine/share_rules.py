"""Who may hold how much of a KV pool, and what goes first: the numbers, without any state."""

from __future__ import annotations

from dataclasses import dataclass

_HEADROOM = 16
"""One block in this many of a tenant's limit stays free of what only waits to be reused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRules:
    """Shares of one engine's pool, in whole percent; each tenant has the same.

    `max_percent` bounds what a tenant holds, in use and cached together; 100 is no limit.
    `guaranteed_percent` of the pool is out of reach of all other tenants. The two fit into the
    pool together, so that no tenant's largest request needs what another is guaranteed.
    `protected_percent` of what a tenant may hold is for blocks that were reused: they outlast those
    that were not. `by_priority`: blocks of tenants with lower priority go first. `public_blocks`
    are set apart for public prefixes: the shares are of the others.

    Raises:
        ValueError: a share is out of range, or the first two exceed the pool together.
    """

    max_percent: int = 100
    guaranteed_percent: int = 0
    protected_percent: int = 0
    by_priority: bool = False
    public_blocks: int = 0

    def __post_init__(self) -> None:
        """Refuse shares that contradict each other."""
        shares = (self.max_percent - 1, self.guaranteed_percent, self.protected_percent)
        if min(shares) < 0 or max(*shares, self.max_percent) > 100:  # noqa: PLR2004 - percent
            raise ValueError(f"shares are 0 to 100 percent, the largest at least 1: {self}")
        if self.guaranteed_percent > 100 - self.max_percent and self.guaranteed_percent:
            raise ValueError(
                f"guaranteed {self.guaranteed_percent} and largest share {self.max_percent} "
                "exceed 100 percent together: lower one of them"
            )

    def tenant_blocks(self, num_blocks: int) -> int:
        """Blocks of a pool that tenants share, at least one."""
        return max(1, num_blocks - self.public_blocks)

    def max_blocks(self, num_blocks: int) -> int:
        """Most blocks that one tenant may hold, at least one."""
        return max(1, num_blocks * self.max_percent // 100)

    def headroom_blocks(self, num_blocks: int) -> int:
        """Blocks of a tenant's limit that what it only caches leaves free, if there is a limit.

        So a running request that grows finds room without evicting, and a pool whose limits sum up
        to its size is never filled to the brim by cache.
        """
        if self.max_percent == 100:  # noqa: PLR2004 - no limit
            return 0
        return self.max_blocks(num_blocks) // _HEADROOM

    def guaranteed_blocks(self, num_blocks: int, *, num_tenants: int) -> int:
        """Blocks that others can't take from a tenant, where so many tenants are known.

        The floors of all but one tenant never exceed what the largest request leaves: any request
        within `max_blocks` fits once others run within their floors, so floors can't make the
        queue stand still. Beyond that many tenants, floors shrink evenly.
        """
        wanted = num_blocks * self.guaranteed_percent // 100
        spare = num_blocks - self.max_blocks(num_blocks)
        return max(0, min(wanted, spare // max(1, num_tenants - 1)))
