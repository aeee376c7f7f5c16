"""Who may hold how much of an engine's KV cache, and what goes first. All of it applies live."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from fleetward_api.resources.base import ApiModel
from fleetward_api.resources.rules import Rule
from fleetward_api.resources.scalars import WHOLE, Percent

PositivePercent: TypeAlias = Annotated[int, Field(ge=1, le=100), WHOLE]


class EvictionSpec(ApiModel):
    """Which cached blocks go first: none in use, and none before those that continue it."""

    policy: Literal["LRU", "Priority"] = "LRU"
    """LRU: the least recently used block goes first. Priority: blocks of tenants with a lower
    `spec.priority` go first, and of one priority the least recently used. Applies live."""
    protected_share_percent: Percent | None = None
    """Part of what a tenant may hold that is kept for its blocks that were reused, in percent:
    blocks that nobody came back to go before them. None is kept when absent. Applies live."""


class QuotaSpec(ApiModel):
    """Shares of each engine's KV blocks, the same for every tenant."""

    max_share_percent: PositivePercent | None = None
    """Most of an engine's KV blocks that one tenant may hold, in use and cached together, in
    percent. At its limit a tenant evicts its own blocks, also while others are free, and its
    requests wait for each other; one request that needs more is refused. A sixteenth of the limit
    is kept free of cache. 100 when absent. Applies live; what is above a lower limit is evicted,
    and running requests that can't fit any more end with an error."""
    guaranteed_share_percent: Percent | None = None
    """Part of an engine's KV blocks that all others together cannot take from a tenant, in percent;
    whether it fills it or not. Needs maxSharePercent. It holds for (100 - maxSharePercent) /
    guaranteedSharePercent + 1 tenants per engine; when more come, it shrinks evenly. None when
    absent. Applies live."""

    rules = (
        Rule(
            cel=(
                "!has(self.guaranteedSharePercent) || self.guaranteedSharePercent == 0"
                " || (has(self.maxSharePercent)"
                " && self.maxSharePercent + self.guaranteedSharePercent <= 100)"
            ),
            message=(
                "spec.quota.guaranteedSharePercent and spec.quota.maxSharePercent (100 when absent)"
                " exceed 100 together, so one tenant's request could need what another is"
                " guaranteed: lower one of them"
            ),
            holds=lambda self: (
                not self.guaranteed_share_percent
                or (self.max_share_percent or 100) + self.guaranteed_share_percent <= 100  # noqa: PLR2004 - percent
            ),
            field="guaranteed_share_percent",
        ),
    )
